"""The metadata tree in memory, with ZooKeeper's rules.

Owns: nodes, versions, transaction ids, ephemeral nodes of sessions, watches. The tree survives the crash of any process (it
stands for an ensemble elsewhere, or for a store that commits durably); a session does not survive the process that opened it.
Never: applies a part of a `multi`.

1. A parent exists before its child and cannot go while it has one; an ephemeral node has no children.
2. Every committed `multi` is one transaction: `czxid` of what it creates is its number, which only grows.
3. A change becomes visible, and is kept, in one instant; a process that dies before hearing of it does not know the outcome.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ottla.ports import BadVersion, Change, Check, Create, Delete, Node, NodeExists, NoNode, SetData, StoreError, StoreUnavailable
from ottla.sim.process import Process


@dataclass(slots=True)
class _Entry:
    data: bytes
    version: int
    czxid: int
    owner: MetadataSession | None
    children_made: int = 0


class MetadataTree:
    """The tree itself. `session` gives a process its way in."""

    def __init__(self) -> None:
        self._entries: dict[str, _Entry] = {"/": _Entry(b"", 0, 0, None)}
        self._children: dict[str, set[str]] = {"/": set()}
        self._zxid = 0
        self._sessions: list[MetadataSession] = []
        self.reachable = True

    def session(self, process: Process, rng: random.Random, *, delay_s_max: float = 0.0) -> MetadataSession:
        session = MetadataSession(self, process, rng, delay_s_max)
        self._sessions.append(session)
        process.at_death.append(session.expire)
        return session

    def get(self, path: str) -> Node | None:
        entry = self._entries.get(path)
        return None if entry is None else Node(entry.data, entry.version, entry.czxid)

    def children(self, path: str) -> list[str]:
        return sorted(self._children.get(path, ()))

    def multi(self, changes: Sequence[Change], session: MetadataSession) -> list[str]:
        """All or none: what was done is undone when a later change is refused."""
        undo: list[Callable[[], None]] = []
        touched: list[str] = []
        events: list[str] = []
        zxid = self._zxid + 1
        try:
            for change in changes:
                touched.append(self._apply(change, zxid, session, undo, events))
        except StoreError:
            for step in reversed(undo):
                step()
            raise
        self._zxid = zxid
        self._notify(events)
        return touched

    def _apply(
        self, change: Change, zxid: int, session: MetadataSession, undo: list[Callable[[], None]], events: list[str]
    ) -> str:
        if isinstance(change, Create):
            return self._create(change, zxid, session, undo, events)
        entry = self._entries.get(change.path)
        if entry is None:
            raise NoNode(change.path)
        if change.version not in (-1, entry.version):
            raise BadVersion(f"{change.path}: version {entry.version}, not {change.version}")
        if isinstance(change, SetData):
            data, version = entry.data, entry.version

            def restore() -> None:
                entry.data, entry.version = data, version

            entry.data, entry.version = bytes(change.data), version + 1
            undo.append(restore)
            events.append(change.path)
        elif isinstance(change, Delete):
            self._delete(change.path, entry, undo, events)
        else:
            assert isinstance(change, Check)
        return change.path

    def _create(
        self, change: Create, zxid: int, session: MetadataSession, undo: list[Callable[[], None]], events: list[str]
    ) -> str:
        path = change.path
        parent, _, name = path.rpartition("/")
        parent = parent or "/"
        above = self._entries.get(parent)
        if above is None:
            raise NoNode(parent)
        if above.owner is not None:
            raise StoreError(f"{parent} is ephemeral and can have no children")
        if change.sequential:
            name = f"{name}{above.children_made:010d}"
            path = f"{parent.rstrip('/')}/{name}"
        if not name:
            raise StoreError(f"a path needs a name: {change.path!r}")
        if path in self._entries:
            raise NodeExists(path)
        above.children_made += 1
        self._entries[path] = _Entry(bytes(change.data), 0, zxid, session if change.ephemeral else None)
        self._children[path] = set()
        self._children[parent].add(name)

        def restore() -> None:
            above.children_made -= 1
            del self._entries[path], self._children[path]
            self._children[parent].discard(name)

        undo.append(restore)
        events.extend((path, parent))
        return path

    def _delete(self, path: str, entry: _Entry, undo: list[Callable[[], None]], events: list[str]) -> None:
        if path == "/":
            raise StoreError("the root cannot be deleted")
        if self._children[path]:
            raise StoreError(f"{path} has children")
        parent, _, name = path.rpartition("/")
        parent = parent or "/"
        del self._entries[path], self._children[path]
        self._children[parent].discard(name)

        def restore() -> None:
            self._entries[path] = entry
            self._children[path] = set()
            self._children[parent].add(name)

        undo.append(restore)
        events.extend((path, parent))

    def expire(self, session: MetadataSession) -> None:
        if session in self._sessions:
            self._sessions.remove(session)
        events: list[str] = []
        for path in sorted(path for path, entry in self._entries.items() if entry.owner is session):
            self._delete(path, self._entries[path], [], events)
        if events:
            self._zxid += 1
        self._notify(events)

    def _notify(self, events: list[str]) -> None:
        for path in dict.fromkeys(events):
            for session in self._sessions:
                session.notify(path)


class MetadataSession:
    """`ports.MetadataStore` for one process."""

    def __init__(self, tree: MetadataTree, process: Process, rng: random.Random, delay_s_max: float) -> None:
        self._tree = tree
        self._process = process
        self._rng = rng
        self._delay_s_max = delay_s_max
        self._open = True
        self._watches: dict[str, list[Callable[[str], None]]] = {}

    async def get(self, path: str) -> Node | None:
        await self._pass()
        return self._tree.get(path)

    async def children(self, path: str) -> list[str]:
        await self._pass()
        return self._tree.children(path)

    async def multi(self, changes: Sequence[Change]) -> list[str]:
        await self._pass()
        touched = self._tree.multi(changes, self)
        # Committed, not yet heard of: a process that dies in here does not know.
        await self._pass()
        return touched

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        self._watches.setdefault(path, []).append(callback)

    async def close(self) -> None:
        self.expire()

    def expire(self) -> None:
        if self._open:
            self._open = False
            self._tree.expire(self)

    def notify(self, path: str) -> None:
        callbacks = self._watches.get(path)
        if callbacks and self._process.alive:
            loop = asyncio.get_running_loop()
            context = self._process.context()
            for callback in callbacks:
                loop.call_soon(callback, path, context=context)

    async def _pass(self) -> None:
        self._process.check()
        if not self._open or not self._tree.reachable:
            raise StoreUnavailable("the session is over" if not self._open else "the store is out of reach")
        if self._delay_s_max:
            await asyncio.sleep(self._rng.random() * self._delay_s_max)
