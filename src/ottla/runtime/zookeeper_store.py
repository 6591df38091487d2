"""The metadata tree of a cluster, in ZooKeeper (through kazoo).

Owns one session with the ensemble, the hand-over from kazoo's threads to the event loop, watches that survive reconnects, and
finding out whether a write whose response was lost took effect. kazoo never retries a write by itself.

1. All callbacks run on the event loop that called `open`.
2. A watch is set again before its callback is called, and all watches are set and called after every reconnect: a callback that
   reads the tree misses nothing.
3. `multi` fails with StoreUnavailable when the session has expired or the store is closed. After a lost connection it waits for
   the next one, reads whether the write took effect, and if not writes again, a few times.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.ports import (
    BadVersion,
    Change,
    Check,
    Create,
    Delete,
    Node,
    NodeExists,
    NoNode,
    SessionEvent,
    SetData,
    StoreError,
    StoreUnavailable,
)
from ottla.runtime.zookeeper_security import UNSECURED, ZooKeeperSecurity

if TYPE_CHECKING:
    from kazoo.client import KazooClient

logger = logging.getLogger(__name__)

_MULTI_BYTES_MAX: Final = 500_000
"""ZooKeeper closes the connection on a request of a megabyte (jute.maxbuffer)."""

_ATTEMPTS_MAX: Final = 10
"""A request that ZooKeeper always answers by closing the connection would be sent forever."""


class ZooKeeperStore:
    """`ports.MetadataStore` on ZooKeeper. Build one with `open`."""

    multi_bytes_max = _MULTI_BYTES_MAX

    def __init__(self, client: KazooClient, loop: asyncio.AbstractEventLoop, security: ZooKeeperSecurity = UNSECURED) -> None:
        self._client = client
        self._security = security
        self._loop = loop
        self._watches: dict[str, list[Callable[[str], None]]] = {}
        self._armed: dict[str, Callable[[object], None]] = {}
        self._listeners: list[Callable[[SessionEvent], None]] = []
        self._connected = asyncio.Event()
        self._connected.set()
        self._session = 0
        """Counts sessions: a call that begins in one and ends in another may not have taken effect."""
        self._open = True

    @classmethod
    async def open(
        cls, connect: str, *, session_timeout_ms: int, connection_timeout_ms: int, security: ZooKeeperSecurity = UNSECURED
    ) -> ZooKeeperStore:
        """Connect to `host:port,host:port/chroot` and create the chroot if it is missing. StoreError if that fails."""
        from ottla.runtime.zookeeper_connect import connect_client

        loop = asyncio.get_running_loop()
        client = await connect_client(connect, session_timeout_ms, connection_timeout_ms, security)
        store = cls(client, loop, security)
        client.add_listener(store._on_kazoo_state)
        return store

    # Reading

    async def get(self, path: str) -> Node | None:
        from kazoo.exceptions import NoNodeError

        try:
            data, stat = await self._read(lambda: self._client.get_async(path))
        except NoNodeError:
            return None
        owner = stat.ephemeralOwner
        # Apache Kafka creates nodes whose data is null.
        return Node(data or b"", stat.version, stat.czxid, mine=bool(owner) and owner == self._session_id())

    async def children(self, path: str) -> list[str]:
        from kazoo.exceptions import NoNodeError

        try:
            return sorted(await self._read(lambda: self._client.get_children_async(path)))
        except NoNodeError:
            return []

    async def _read(self, ask: Callable[[], Any]) -> Any:
        """Reads are repeated after a lost connection."""
        from kazoo.exceptions import ConnectionLoss, KazooException, NoNodeError, OperationTimeoutError

        while True:
            session = self._session
            try:
                return await self._call(ask)
            except NoNodeError:
                raise
            except (ConnectionLoss, OperationTimeoutError):
                await self._wait_for_connection(session)
            except KazooException as error:
                raise _failure(error) from error

    # Writing

    async def multi(self, changes: Sequence[Change]) -> list[str]:
        from kazoo.exceptions import ConnectionLoss, KazooException, OperationTimeoutError

        for _ in range(_ATTEMPTS_MAX):
            session = self._session
            try:
                results = await self._call(lambda: self._transaction(changes).commit_async())
            except (ConnectionLoss, OperationTimeoutError):
                await self._wait_for_connection(session)
                if await self._took_effect(changes):
                    return [change.path for change in changes]
                continue
            except KazooException as error:
                raise _failure(error) from error
            return self._touched(changes, results)
        raise StoreUnavailable(f"ZooKeeper closed the connection on {_ATTEMPTS_MAX} attempts to write {len(changes)} changes")

    def _transaction(self, changes: Sequence[Change]) -> Any:
        transaction = self._client.transaction()
        for change in changes:
            if isinstance(change, Create):
                acl = self._security.acl_of(change.path)
                transaction.create(change.path, bytes(change.data), acl, change.ephemeral, change.sequential)
            elif isinstance(change, SetData):
                transaction.set_data(change.path, bytes(change.data), change.version)
            elif isinstance(change, Delete):
                transaction.delete(change.path, change.version)
            else:
                transaction.check(change.path, change.version)
        return transaction

    def _touched(self, changes: Sequence[Change], results: Sequence[object]) -> list[str]:
        from kazoo.exceptions import RolledBackError, RuntimeInconsistency

        for change, result in zip(changes, results, strict=True):
            if isinstance(result, Exception) and not isinstance(result, (RolledBackError, RuntimeInconsistency)):
                raise _refusal(change.path, result)
        return [
            result if isinstance(change, Create) and isinstance(result, str) else change.path
            for change, result in zip(changes, results, strict=True)
        ]

    async def _took_effect(self, changes: Sequence[Change]) -> bool:
        """Whether a `multi` whose response was lost took effect. It is atomic: one of its changes tells."""
        await self._read(lambda: self._client.sync_async("/"))
        for change in changes:
            if isinstance(change, Check) or (isinstance(change, Create) and change.sequential):
                continue
            node = await self.get(change.path)
            if isinstance(change, Delete):
                return node is None
            if node is None or node.data != change.data:
                return False
            if isinstance(change, Create):
                return node.mine or not change.ephemeral
            return change.version in (-1, node.version - 1)
        return False

    # The session

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        self._watches.setdefault(path, []).append(callback)
        if path not in self._armed:
            # One callable for each path: kazoo keeps them in a set, so a watch that is set twice fires once.
            self._armed[path] = lambda _event: self._on_loop(self._fire, path)
        self._arm(path)

    def unwatch(self, path: str, callback: Callable[[str], None]) -> None:
        self._watches[path].remove(callback)
        if not self._watches[path]:
            # A watch that ZooKeeper still has fires once more, without effect.
            del self._watches[path], self._armed[path]

    def _arm(self, path: str) -> None:
        if self._open:
            # The responses are ignored: a failure means a lost connection, after which all watches are set again.
            self._client.exists_async(path, watch=self._armed[path])
            self._client.get_children_async(path, watch=self._armed[path])

    def _fire(self, path: str) -> None:
        if self._open and path in self._watches:
            self._arm(path)
            for callback in list(self._watches[path]):
                callback(path)

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        self._listeners.append(callback)

    def _on_kazoo_state(self, state: str) -> None:
        # In kazoo's thread.
        self._on_loop(self._session_changed, state)

    def _session_changed(self, state: str) -> None:
        from kazoo.protocol.states import KazooState

        if not self._open:
            return
        if state == KazooState.SUSPENDED:
            self._connected.clear()
            self._notify(SessionEvent.SUSPENDED)
        elif state == KazooState.LOST:
            self._connected.clear()
            self._session += 1
            self._notify(SessionEvent.EXPIRED)
        else:
            self._connected.set()
            self._notify(SessionEvent.CONNECTED)
            for path in list(self._watches):
                self._fire(path)

    def _notify(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            logger.info("Connected to ZooKeeper again")
        elif event is SessionEvent.EXPIRED:
            logger.warning("ZooKeeper session expired: this broker registers again")
        else:
            logger.warning(
                "ZooKeeper session suspended: no connection. Producing, consuming and committing offsets go on with the present "
                "leaders. Until ZooKeeper is back no leader is elected, no ISR changes, and changes of topics, configs, ACLs, "
                "quotas and users are refused"
            )
        for callback in self._listeners:
            callback(event)

    async def _wait_for_connection(self, session: int) -> None:
        """Wait for the next connection. StoreUnavailable if the session of the call expires before."""
        # kazoo fails calls before it reports the lost connection.
        while self._client.connected is False or not self._connected.is_set():
            if not self._open or self._session != session:
                break
            try:
                async with asyncio.timeout(0.1):
                    await self._connected.wait()
            except TimeoutError:
                continue
            if not self._client.connected:
                await asyncio.sleep(0.02)
        if not self._open:
            raise StoreUnavailable("the store is closed")
        if self._session != session:
            raise StoreUnavailable("the ZooKeeper session expired")

    async def close(self) -> None:
        if self._open:
            from ottla.runtime.zookeeper_connect import stop_client

            self._open = False
            self._client.remove_listener(self._on_kazoo_state)
            await asyncio.to_thread(stop_client, self._client)

    def _session_id(self) -> int | None:
        client_id = self._client.client_id
        return None if client_id is None else client_id[0]

    async def _call(self, ask: Callable[[], Any]) -> Any:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(result: Any) -> None:
            # In kazoo's thread.
            self._on_loop(_complete, future, result)

        ask().rawlink(done)
        return await future

    def _on_loop(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return  # the loop is closed


def _complete(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if result.successful():
        future.set_result(result.value)
    else:
        future.set_exception(result.exception)


def _failure(error: Exception) -> StoreError:
    return StoreUnavailable(f"ZooKeeper: {str(error) or type(error).__name__}")


def _refusal(path: str, error: Exception) -> StoreError:
    from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

    if isinstance(error, NoNodeError):
        return NoNode(path)
    if isinstance(error, NodeExistsError):
        return NodeExists(path)
    if isinstance(error, BadVersionError):
        return BadVersion(f"{path}: changed by another writer")
    return StoreError(f"{path}: {str(error) or type(error).__name__}")
