"""The metadata store of the simulator: one tree for all processes.

Owns: sessions and their ephemeral nodes, watches, delays and being out of reach. The tree survives the crash of any process (it
stands for an ensemble elsewhere, or for a store that commits durably); a session does not survive the process that opened it.
Never: has rules of its own about nodes (`cluster.node_tree`).

1. A change becomes visible, and is kept, in one instant; a process that dies before hearing of it does not know the outcome.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence

from ottla.cluster.node_tree import NodeTree
from ottla.ports import Change, Node, SessionEvent, StoreError, StoreUnavailable
from ottla.sim.process import Process


class MetadataTree:
    """The tree itself. `session` gives a process its way in."""

    def __init__(self) -> None:
        self._tree = NodeTree()
        self._sessions: list[MetadataSession] = []
        self.reachable = True

    def session(self, process: Process, rng: random.Random, *, delay_s_max: float = 0.0, host: str = "") -> MetadataSession:
        session = MetadataSession(self, process, rng, delay_s_max)
        self._sessions.append(session)
        process.at_death.append(session.expire)
        return session

    def get(self, path: str, session: MetadataSession | None = None) -> Node | None:
        return self._tree.get(path, session)

    def children(self, path: str) -> list[str]:
        return self._tree.names_below(path)

    def multi(self, changes: Sequence[Change], session: MetadataSession) -> list[str]:
        transaction = self._tree.begin(session)
        try:
            touched = [transaction.apply(change) for change in changes]
        except StoreError:
            transaction.undo()
            raise
        transaction.commit()
        self._notify(transaction.events)
        return touched

    def expire(self, session: MetadataSession) -> None:
        if session in self._sessions:
            self._sessions.remove(session)
        self.forget(session)

    def forget(self, session: MetadataSession) -> None:
        """Remove the ephemeral nodes of a session."""
        removal = self._tree.removal_of(session)
        removal.commit()
        self._notify(removal.events)

    def _notify(self, events: list[str]) -> None:
        for path in dict.fromkeys(events):
            for session in self._sessions:
                session.notify(path)


class MetadataSession:
    """`ports.MetadataStore` for one process."""

    multi_bytes_max = 1 << 62

    def __init__(self, tree: MetadataTree, process: Process, rng: random.Random, delay_s_max: float) -> None:
        self._tree = tree
        self._process = process
        self._rng = rng
        self._delay_s_max = delay_s_max
        self._open = True
        self._watches: dict[str, list[Callable[[str], None]]] = {}
        self._listeners: list[Callable[[SessionEvent], None]] = []

    async def get(self, path: str) -> Node | None:
        await self._pass()
        return self._tree.get(path, self)

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

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        self._listeners.append(callback)

    def lose(self) -> None:
        """The session expires under a process that lives on: its ephemeral nodes go, a new session takes its place."""
        self._tree.forget(self)
        loop = asyncio.get_running_loop()
        for event in (SessionEvent.EXPIRED, SessionEvent.CONNECTED):
            for callback in self._listeners:
                loop.call_soon(callback, event, context=self._process.context())
        for path in list(self._watches):
            self.notify(path)

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
