"""The metadata tree of a cluster, in ZooKeeper (through kazoo).

Owns: one session with the ensemble, the hop from kazoo's threads to the event loop, watches that outlive reconnects, and finding
out what became of a change whose answer was lost.
Never: knows what the nodes mean; lets kazoo retry a change by itself.

1. Everything the caller sees happens on the event loop that called `open`.
2. A watch is set again before its callback is called, and all of them are set and called after every reconnect: who reads the
   tree in the callback misses nothing.
3. `multi` fails with StoreUnavailable when the session is over or the store is closed. A lost connection is waited out; then the
   tree tells whether the change was made, and if not it is made again, a few times.
"""

from __future__ import annotations

import asyncio
import logging
import socket
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

if TYPE_CHECKING:
    from kazoo.client import KazooClient

logger = logging.getLogger(__name__)

_MULTI_BYTES_MAX: Final = 500_000
"""An ensemble refuses a request of a megabyte (jute.maxbuffer), by closing the connection."""


_ATTEMPTS_MAX: Final = 10
"""A request the ensemble cannot stand (too large for its settings) would be made for ever."""
_PROBE_S: Final = 1.0
_LOOK_S: Final = 0.01


class ZooKeeperStore:
    """`ports.MetadataStore` on ZooKeeper. Build one with `open`."""

    multi_bytes_max = _MULTI_BYTES_MAX

    def __init__(self, client: KazooClient, loop: asyncio.AbstractEventLoop) -> None:
        self._client = client
        self._loop = loop
        self._watches: dict[str, list[Callable[[str], None]]] = {}
        self._armed: dict[str, Callable[[object], None]] = {}
        self._listeners: list[Callable[[SessionEvent], None]] = []
        self._in_touch = asyncio.Event()
        self._in_touch.set()
        self._session = 0
        """Counts sessions: a call that began in one and ends in another did not necessarily happen."""
        self._open = True

    @classmethod
    async def open(cls, connect: str, *, session_timeout_ms: int, connection_timeout_ms: int) -> ZooKeeperStore:
        """Connect to `host:port,host:port/chroot`; the chroot is made where it is missing. A StoreError says in one sentence why
        there is no store."""
        try:
            from kazoo.client import KazooClient
            from kazoo.exceptions import KazooException
            from kazoo.retry import KazooRetry
        except ImportError:
            raise StoreUnavailable("zookeeper.connect needs the package kazoo: pip install 'ottla[cluster]'") from None
        hosts, chroot = _parse(connect)
        logging.getLogger("kazoo").setLevel(logging.ERROR)
        client = KazooClient(
            hosts=",".join(hosts),
            timeout=session_timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=0.05, backoff=2, max_delay=1.0, max_jitter=0.2),
            command_retry=KazooRetry(max_tries=0),
        )
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(connection_timeout_ms / 1000):
                await _start(client)
            if chroot:
                await asyncio.to_thread(client.ensure_path, chroot)
                client.chroot = chroot
        except (KazooException, OSError) as error:
            await asyncio.to_thread(_shut, client)
            if isinstance(error, TimeoutError):
                why = "; ".join(await asyncio.gather(*(asyncio.to_thread(_why_not, host) for host in hosts)))
            else:
                why = str(error) or type(error).__name__
            raise StoreUnavailable(
                f"ZooKeeper cannot be reached at zookeeper.connect={connect} within {connection_timeout_ms} ms: {why}"
            ) from error
        except BaseException:
            await asyncio.to_thread(_shut, client)
            raise
        store = cls(client, loop)
        client.add_listener(store._hear)
        return store

    # Reading

    async def get(self, path: str) -> Node | None:
        from kazoo.exceptions import NoNodeError

        try:
            data, stat = await self._read(lambda: self._client.get_async(path))
        except NoNodeError:
            return None
        owner = stat.ephemeralOwner
        # Apache Kafka makes nodes without data, not even empty ones.
        return Node(data or b"", stat.version, stat.czxid, mine=bool(owner) and owner == self._session_id())

    async def children(self, path: str) -> list[str]:
        from kazoo.exceptions import NoNodeError

        try:
            return sorted(await self._read(lambda: self._client.get_children_async(path)))
        except NoNodeError:
            return []

    async def _read(self, ask: Callable[[], Any]) -> Any:
        """Reading again does no harm: a lost connection is waited out."""
        from kazoo.exceptions import ConnectionLoss, KazooException, NoNodeError, OperationTimeoutError

        while True:
            session = self._session
            try:
                return await self._answer(ask)
            except NoNodeError:
                raise
            except (ConnectionLoss, OperationTimeoutError):
                await self._wait_for_touch(session)
            except KazooException as error:
                raise _failure(error) from error

    # Writing

    async def multi(self, changes: Sequence[Change]) -> list[str]:
        from kazoo.exceptions import ConnectionLoss, KazooException, OperationTimeoutError

        for _ in range(_ATTEMPTS_MAX):
            session = self._session
            try:
                results = await self._answer(lambda: self._transaction(changes).commit_async())
            except (ConnectionLoss, OperationTimeoutError):
                await self._wait_for_touch(session)
                if await self._was_made(changes):
                    return [change.path for change in changes]
                continue
            except KazooException as error:
                raise _failure(error) from error
            return self._touched(changes, results)
        raise StoreUnavailable(f"ZooKeeper closed the connection each time it was asked for {len(changes)} changes")

    def _transaction(self, changes: Sequence[Change]) -> Any:
        transaction = self._client.transaction()
        for change in changes:
            if isinstance(change, Create):
                transaction.create(change.path, bytes(change.data), ephemeral=change.ephemeral, sequence=change.sequential)
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

    async def _was_made(self, changes: Sequence[Change]) -> bool:
        """Whether a `multi` took effect whose answer was lost. All of it did or nothing: one change that shows tells."""
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
            # One callable for each path: kazoo keeps callables in a set, so that a watch set twice still fires once.
            self._armed[path] = lambda _event: self._on_loop(self._fire, path)
        self._arm(path)

    def unwatch(self, path: str, callback: Callable[[str], None]) -> None:
        self._watches[path].remove(callback)
        if not self._watches[path]:
            # What the ensemble still remembers fires once more, into nothing.
            del self._watches[path], self._armed[path]

    def _arm(self, path: str) -> None:
        if self._open:
            # Nobody waits for the answers: a failure means a lost connection, after which everything is armed anew.
            self._client.exists_async(path, watch=self._armed[path])
            self._client.get_children_async(path, watch=self._armed[path])

    def _fire(self, path: str) -> None:
        if self._open and path in self._watches:
            self._arm(path)
            for callback in list(self._watches[path]):
                callback(path)

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        self._listeners.append(callback)

    def _hear(self, state: str) -> None:
        # In kazoo's thread.
        self._on_loop(self._session_changed, state)

    def _session_changed(self, state: str) -> None:
        from kazoo.protocol.states import KazooState

        if not self._open:
            return
        if state == KazooState.SUSPENDED:
            self._in_touch.clear()
            self._tell(SessionEvent.SUSPENDED)
        elif state == KazooState.LOST:
            self._in_touch.clear()
            self._session += 1
            self._tell(SessionEvent.EXPIRED)
        else:
            self._in_touch.set()
            self._tell(SessionEvent.CONNECTED)
            for path in list(self._watches):
                self._fire(path)

    def _tell(self, event: SessionEvent) -> None:
        logger.info("ZooKeeper: %s", event.value)
        for callback in self._listeners:
            callback(event)

    async def _wait_for_touch(self, session: int) -> None:
        """Until the ensemble is heard again. StoreUnavailable if the session of the call did not live to see it."""
        # kazoo fails calls before it tells of the lost connection.
        while self._client.connected is False or not self._in_touch.is_set():
            if not self._open or self._session != session:
                break
            try:
                async with asyncio.timeout(0.1):
                    await self._in_touch.wait()
            except TimeoutError:
                continue
            if not self._client.connected:
                await asyncio.sleep(0.02)
        if not self._open:
            raise StoreUnavailable("the store is closed")
        if self._session != session:
            raise StoreUnavailable("the session with ZooKeeper is over")

    async def close(self) -> None:
        if self._open:
            self._open = False
            self._client.remove_listener(self._hear)
            await asyncio.to_thread(_shut, self._client)

    def _session_id(self) -> int | None:
        client_id = self._client.client_id
        return None if client_id is None else client_id[0]

    async def _answer(self, ask: Callable[[], Any]) -> Any:
        if not self._open:
            raise StoreUnavailable("the store is closed")
        future: asyncio.Future[Any] = self._loop.create_future()

        def done(result: Any) -> None:
            # In kazoo's thread.
            self._on_loop(_settle, future, result)

        ask().rawlink(done)
        return await future

    def _on_loop(self, function: Callable[..., None], *arguments: object) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:
            return  # the loop is closed: nobody is left to hear


def _settle(future: asyncio.Future[Any], result: Any) -> None:
    if future.done():
        return
    if result.successful():
        future.set_result(result.value)
    else:
        future.set_exception(result.exception)


def _parse(connect: str) -> tuple[list[str], str]:
    """`host:port,host:port/chroot`, as Kafka reads it. StoreError for anything else."""
    addresses, slash, path = connect.strip().partition("/")
    hosts = [address.strip() for address in addresses.split(",") if address.strip()]
    if not hosts:
        raise StoreError(
            f"zookeeper.connect={connect!r} names no host; write host:2181,host2:2181/path, or nothing at all for one broker"
        )
    checked: list[str] = []
    for host in hosts:
        name, colon, port = host.rpartition(":")
        if not colon:
            name, port = host, "2181"
        is_name = bool(name) and (":" not in name or (name[0] == "[" and name[-1] == "]"))
        if not is_name or not port.isdigit() or not 0 < int(port) < 65536:
            raise StoreError(f"zookeeper.connect={connect!r}: {host!r} is no host:port")
        checked.append(f"{name}:{port}")
    chroot = f"{slash}{path}".rstrip("/")
    if "//" in chroot or any(part in (".", "..") for part in path.split("/")):
        raise StoreError(f"zookeeper.connect={connect!r}: {chroot!r} is no path of ZooKeeper")
    return checked, chroot


def _why_not(address: str) -> str:
    """What somebody who tries by hand would find."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _PROBE_S):
            return f"{address} takes connections, but does not answer as ZooKeeper does"
    except socket.gaierror:
        return f"there is no host {host}"
    except TimeoutError:
        return f"{address} does not answer"
    except OSError as error:
        return f"{address}: {(error.strerror or str(error)).lower()}"


async def _start(client: KazooClient) -> None:
    """`client.start` waits in a thread that nobody can interrupt: a broker that is told to stop meanwhile would not end."""
    connected = client.start_async()
    while not connected.is_set():
        await asyncio.sleep(_LOOK_S)


def _shut(client: KazooClient) -> None:
    client.stop()
    client.close()


def _failure(error: Exception) -> StoreError:
    return StoreUnavailable(f"ZooKeeper: {str(error) or type(error).__name__}")


def _refusal(path: str, error: Exception) -> StoreError:
    from kazoo.exceptions import BadVersionError, NodeExistsError, NoNodeError

    if isinstance(error, NoNodeError):
        return NoNode(path)
    if isinstance(error, NodeExistsError):
        return NodeExists(path)
    if isinstance(error, BadVersionError):
        return BadVersion(f"{path}: somebody changed it in between")
    return StoreError(f"{path}: {str(error) or type(error).__name__}")
