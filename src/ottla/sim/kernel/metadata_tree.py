"""The metadata store of the simulator: one tree for all processes.

Owns: sessions and their ephemeral nodes, watches, delays, and being out of reach. The tree survives the crash of any process (it
stands for an ensemble elsewhere, or for a store that commits durably).
Never: has rules of its own about nodes (`cluster.node_tree`).

1. A change becomes visible and durable in one instant; a process that dies before the answer does not know the outcome.
2. Requests of a session are performed in order; answers and watches arrive in the order of the changes.
3. With a `session_timeout_s` a session expires when its process is dead, paused or out of reach for so long. Without one it
   expires when its process dies, and the store refuses what it cannot answer now.
4. A process learns that its session has expired when it is connected again, not before. A call of an expired session fails; a
   call of a live session that was disconnected is answered later.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Sequence
from contextvars import Context
from typing import Any, TypeVar

from ottla.cluster.node_tree import NodeTree
from ottla.ports import Change, Node, SessionEvent, StoreError, StoreUnavailable
from ottla.sim.kernel.process import Process

T = TypeVar("T")


class MetadataTree:
    """The tree. `session` connects a process to it."""

    def __init__(self, session_timeout_s: float | None = None) -> None:
        self._tree = NodeTree()
        self._sessions: list[MetadataSession] = []
        self.session_timeout_s = session_timeout_s
        self.reachable = True
        self.closed = False
        """The run is over: no watch is called any more."""
        self.on_change: Callable[[list[str]], None] = lambda paths: None
        """Called with the paths of every committed change, for checkers."""

    def session(self, process: Process, rng: random.Random, *, delay_s_max: float = 0.0, host: str = "") -> MetadataSession:
        session = MetadataSession(self, process, rng, delay_s_max, host)
        self._sessions.append(session)
        process.at_death.append(session.process_died)
        return session

    def get(self, path: str, owner: object | None = None) -> Node | None:
        return self._tree.get(path, owner)

    def children(self, path: str) -> list[str]:
        return self._tree.names_below(path)

    def multi(self, changes: Sequence[Change], owner: object) -> list[str]:
        transaction = self._tree.begin(owner)
        try:
            touched = [transaction.apply(change) for change in changes]
        except StoreError:
            transaction.undo()
            raise
        transaction.commit()
        self._notify(transaction.events)
        return touched

    def cut(self, host: str) -> None:
        """Disconnect a machine from the store."""
        for session in self._of(host):
            session.lose_touch()

    def heal(self, host: str) -> None:
        for session in self._of(host):
            session.find_touch()

    def lose_sessions_of(self, host: str) -> None:
        for session in self._of(host):
            session.lose()

    def _of(self, host: str) -> list[MetadataSession]:
        return [session for session in self._sessions if session.host == host]

    def expire(self, session: MetadataSession) -> None:
        if session in self._sessions:
            self._sessions.remove(session)
        self.forget(session)

    def forget(self, session: MetadataSession) -> None:
        """Remove the ephemeral nodes of a session."""
        removal = self._tree.removal_of(session.owner)
        removal.commit()
        self._notify(removal.events)

    def _notify(self, events: list[str]) -> None:
        paths = list(dict.fromkeys(events))
        for path in paths:
            for session in list(self._sessions):
                session.notify(path)
        if paths:
            self.on_change(paths)


class MetadataSession:
    """`ports.MetadataStore` for one process."""

    multi_bytes_max = 1 << 62

    def __init__(self, tree: MetadataTree, process: Process, rng: random.Random, delay_s_max: float, host: str) -> None:
        self.host = host
        self.owner = object()
        """Owner of the ephemeral nodes; a new one after the session has expired."""
        self._tree = tree
        self._process = process
        self._rng = rng
        self._delay_s_max = delay_s_max
        self._open = True
        self._watches: dict[str, list[Callable[[str], None]]] = {}
        self._listeners: list[Callable[[SessionEvent], None]] = []
        self._in_touch = True
        self._expired = False
        self._expiry: asyncio.TimerHandle | None = None
        self._arrival_s = 0.0
        self._return_s = 0.0
        self._waiting: list[tuple[object, Callable[[], Any], asyncio.Future[Any]]] = []
        """Calls made while disconnected: owner, call, and the future that waits."""

    # -- the port

    async def get(self, path: str) -> Node | None:
        return await self._ask(lambda: self._tree.get(path, self.owner))

    async def children(self, path: str) -> list[str]:
        return await self._ask(lambda: self._tree.children(path))

    async def multi(self, changes: Sequence[Change]) -> list[str]:
        return await self._ask(lambda: self._tree.multi(changes, self.owner))

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        self._watches.setdefault(path, []).append(callback)

    def unwatch(self, path: str, callback: Callable[[str], None]) -> None:
        self._watches[path].remove(callback)
        if not self._watches[path]:
            del self._watches[path]

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        self._listeners.append(callback)

    async def close(self) -> None:
        self.expire()

    # -- asking

    async def _ask(self, perform: Callable[[], T]) -> T:
        self._process.check()
        if not self._open:
            raise StoreUnavailable("the session is over")
        if self._tree.session_timeout_s is None and not self._tree.reachable:
            raise StoreUnavailable("the store is out of reach")
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._send(self.owner, perform, future)
        return await future

    def _send(self, owner: object, perform: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        if not self._in_touch:
            self._waiting.append((owner, perform, future))
            return
        loop = asyncio.get_running_loop()
        self._arrival_s = max(self._arrival_s, loop.time() + self._rng.random() * self._delay_s_max)
        # No process's context: a request that was sent arrives, even if its process has died or paused since.
        loop.call_at(self._arrival_s, self._perform, owner, perform, future, context=Context())

    def _perform(self, owner: object, perform: Callable[[], Any], future: asyncio.Future[Any]) -> None:
        if not self._in_touch:
            self._waiting.append((owner, perform, future))  # it did not arrive
            return
        if owner is not self.owner or not self._open:
            self._answer(_fail, future, StoreUnavailable("the session with the store is over"))
            return
        try:
            result = perform()
        except StoreError as error:
            self._answer(_fail, future, error)
        else:
            self._answer(_succeed, future, result)

    def _answer(self, callback: Callable[..., None], *arguments: Any) -> None:
        """Deliver something to the process, after everything delivered before."""
        if not self._process.alive:
            return
        loop = asyncio.get_running_loop()
        self._return_s = max(self._return_s, loop.time() + self._rng.random() * self._delay_s_max)
        loop.call_at(self._return_s, callback, *arguments, context=self._process.context())

    def notify(self, path: str) -> None:
        if self._in_touch:
            for callback in self._watches.get(path, ()):
                self._answer(callback, path)

    # -- the session

    def _tell(self, event: SessionEvent) -> None:
        for callback in self._listeners:
            self._answer(callback, event)

    def lose_touch(self) -> None:
        """Disconnect this session: nothing goes either way."""
        timeout_s = self._tree.session_timeout_s
        if not self._in_touch or timeout_s is None:
            return
        self._in_touch = False
        self._tell(SessionEvent.SUSPENDED)
        self._expiry = asyncio.get_running_loop().call_later(timeout_s, self._time_is_over, context=Context())

    def _time_is_over(self) -> None:
        if not self._in_touch and self._open and not self._expired:
            self._expired = True
            self._tree.forget(self)
            if not self._process.alive:
                self.expire()

    def find_touch(self) -> None:
        if self._in_touch or not self._open or not self._process.alive:
            return
        self._in_touch = True
        if self._expiry is not None:
            self._expiry.cancel()
        if self._expired:
            self._expired = False
            self.owner = object()
            self._tell(SessionEvent.EXPIRED)
        self._tell(SessionEvent.CONNECTED)
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            self._send(*each)
        for path in list(self._watches):
            self.notify(path)

    def lose(self) -> None:
        """Expire the session of a live process: its ephemeral nodes are removed, and a new session replaces it."""
        self._tree.forget(self)
        self.owner = object()
        self._tell(SessionEvent.EXPIRED)
        self._tell(SessionEvent.CONNECTED)
        for path in list(self._watches):
            self.notify(path)

    def process_died(self) -> None:
        """The process has died. The store does not know it; it only gets no more pings."""
        if self._tree.closed:
            return
        if self._tree.session_timeout_s is None:
            self.expire()
        else:
            self.lose_touch()

    def expire(self) -> None:
        if self._open:
            self._open = False
            if self._expiry is not None:
                self._expiry.cancel()
            self._tree.expire(self)


def _succeed(future: asyncio.Future[Any], result: Any) -> None:
    if not future.done():
        future.set_result(result)


def _fail(future: asyncio.Future[Any], error: StoreError) -> None:
    if not future.done():
        future.set_exception(error)
