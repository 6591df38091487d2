"""The metadata store of the simulator: one tree for all processes.

Owns: sessions and their ephemeral nodes, watches, delays, and being out of reach. The tree survives the crash of any process (it
stands for an ensemble elsewhere, or for a store that commits durably).
Never: has rules of its own about nodes (`cluster.node_tree`).

1. A change becomes visible, and is kept, in one instant; a process that dies before hearing of it does not know the outcome.
2. Requests of a session are performed in their order, and it hears answers and watches in the order of what happened.
3. With a `session_timeout_s` a session is over when nothing was heard of it for so long: its process is dead, stopped, or out
   of reach. Without one it is over when its process is dead, and the store refuses what it cannot answer now.
4. A process learns that its session is over when it is in touch again, not before. A call that began in a session that is over
   fails; one that was cut off in a session that lives is answered when it can be.
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
    """The tree itself. `session` gives a process its way in."""

    def __init__(self, session_timeout_s: float | None = None) -> None:
        self._tree = NodeTree()
        self._sessions: list[MetadataSession] = []
        self.session_timeout_s = session_timeout_s
        self.reachable = True
        self.closed = False
        """The run is over: nobody is to hear of anything."""
        self.on_change: Callable[[list[str]], None] = lambda paths: None
        """Told of every committed change, for those who check."""

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
        """A machine does not reach the store any more."""
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
        """To whom ephemeral nodes belong: another one after the session has expired."""
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
        """What was asked while out of touch: by which owner, what, and who waits for it."""

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
        # Nobody's context: what has left a process arrives, also if it is dead or stopped meanwhile.
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
        """Something for the process to hear, behind all it was to hear before."""
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
        """From now on the store hears nothing of this session, nor the session of the store."""
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
        """The session expires under a process that lives on: its ephemeral nodes go, a new session takes its place."""
        self._tree.forget(self)
        self.owner = object()
        self._tell(SessionEvent.EXPIRED)
        self._tell(SessionEvent.CONNECTED)
        for path in list(self._watches):
            self.notify(path)

    def process_died(self) -> None:
        """The store does not know it; it only hears nothing any more."""
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
