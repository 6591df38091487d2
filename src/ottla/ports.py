"""The broker's interfaces to the world: clock, randomness, disk, network, worker threads, metadata store.

Each port is a `Protocol`. `ottla.runtime` implements it with the operating system, `ottla.sim` with a seeded simulation; no other
package may use a clock, a disk, a socket or randomness. A port raises `OSError` (disk, network) or `StoreError` (metadata) and
nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.types import Buffer

if TYPE_CHECKING:
    import asyncio
    import ssl

T = TypeVar("T")


class Clock(Protocol):
    """Wall-clock time for timestamps, monotonic time for durations. Timers are the event loop's."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class Random(Protocol):
    def bytes(self, count: int) -> bytes: ...

    def below(self, limit: int) -> int:
        """A uniform random number in [0, limit)."""
        ...


class Workers(Protocol):
    """Threads for work that blocks, such as an fsync or the recovery of a log."""

    async def run(self, work: Callable[[], T]) -> T: ...

    def let_others_run(self) -> None:
        """Yield the interpreter to the event loop. Called from time to time inside of long computations."""
        ...


class File(Protocol):
    """An open file without a cursor: reads and writes name their position."""

    path: str

    def size(self) -> int: ...

    def read(self, position: int, count: int) -> bytes:
        """Up to `count` bytes; fewer only at the end of the file."""
        ...

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        """Write all parts, one after the other, or raise OSError."""
        ...

    def truncate(self, size: int) -> None:
        """Truncate the file, and release the space that is reserved behind the new end."""
        ...

    def reserve(self, start: int, end: int) -> bool:
        """Preallocate blocks for [start, end), so that writing there costs less. Neither size nor content changes. False:
        nothing was reserved, because the volume is full or its file system does not support it. Never raises."""
        ...

    def release(self) -> None:
        """Release blocks reserved behind the end of the file, by this or an earlier process. Not concurrently with a write. Never
        raises."""
        ...

    def flush(self) -> None:
        """fsync: the content is durable once this returns."""
        ...

    def fileno(self) -> int:
        """For `sendfile`. A simulated file has none and raises OSError."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing. FileNotFoundError unless the file exists or `create` is set."""
        ...

    def exists(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def list(self, path: str) -> list[str]:
        """The names in a directory, sorted."""
        ...

    def is_dir(self, path: str) -> bool: ...

    def make_dirs(self, path: str) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Atomic, replaces `target`."""
        ...

    def remove(self, path: str) -> None: ...

    def remove_tree(self, path: str) -> None: ...

    def flush_dir(self, path: str) -> None:
        """Make creations, renames and removals in a directory durable."""
        ...

    def at_once(self, calls: Sequence[Callable[[], object]]) -> None:
        """Run flushes concurrently, in any order: a disk merges them. Returns when all have ended; raises the OSError of one that
        failed."""
        ...

    def lock(self, path: str) -> File:
        """Lock a file until it is closed. BlockingIOError if another process holds the lock."""
        ...

    def usage(self, path: str) -> tuple[int, int]:
        """(total bytes, usable bytes) of the volume."""
        ...


@dataclass(slots=True, unsafe_hash=True)
class FileRange:
    """Bytes of a file that are sent to a socket by `sendfile`. Immutable by convention: a frozen dataclass is slower to create,
    and every fetch creates one."""

    file: File
    position: int
    size: int


Part = Buffer | FileRange


class ServerTls(Protocol):
    """TLS of a listener."""

    def context(self) -> ssl.SSLContext:
        """For a new connection. It changes when the certificate does."""
        ...

    def admits(self, host: str) -> bool:
        """Whether a connection of this address is worth a handshake."""
        ...

    def failed(self, host: str, port: int, reason: str) -> None:
        """Called for each connection that is closed because of TLS."""
        ...


class Network(Protocol):
    """Listening, connecting, and `sendfile`, which asyncio transports do not have with uvloop.

    With TLS, the factory is called after the handshake. `get_extra_info` of the transport then knows `peercert_der` too."""

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, tls: ServerTls | None = None
    ) -> Listener: ...

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> asyncio.Transport:
        """OSError if it fails, ssl.SSLError among them. With TLS `host` is also the name that the certificate must have, if the
        context checks it."""
        ...

    def file_sender(self, transport: asyncio.Transport) -> FileSender: ...


class Listener(Protocol):
    @property
    def port(self) -> int:
        """The port that is bound, also if port 0 was requested."""
        ...

    def pause(self) -> None:
        """Accept nothing until `resume`: new connections wait in the system's queue."""
        ...

    def resume(self) -> None: ...

    def close(self) -> None: ...


class FileSender(Protocol):
    """Sends file ranges on one transport, each after some bytes. Used only while the transport's write buffer is empty."""

    def send(self, head: Buffer, part: FileRange, sent: Callable[[OSError | None], None]) -> bool:
        """Start sending. True: everything is sent. False: `sent` is called when everything is, or with the error."""
        ...

    def close(self) -> None: ...


class Descriptors(Protocol):
    """The open files of this process. Sockets and files share one limit; some are kept for files."""

    def limit(self) -> int: ...

    def kept(self) -> int:
        """How many connections must leave to logs and checkpoints."""
        ...

    def full(self) -> bool:
        """Whether one more connection would take a descriptor that is kept."""
        ...

    def files_left(self) -> int:
        """How many more files may stay open. Half of those kept remain for files that are open for a moment."""
        ...


class UnlimitedDescriptors:
    """`Descriptors` where nothing limits them."""

    def limit(self) -> int:
        return 1 << 31

    def kept(self) -> int:
        return 1024

    def full(self) -> bool:
        return False

    def files_left(self) -> int:
        return 1 << 31


class StoreError(Exception):
    """The metadata store refused a change or is unreachable."""


class NoNode(StoreError):
    """The path does not exist."""


class NodeExists(StoreError):
    """The path exists already."""


class BadVersion(StoreError):
    """The node has another version than expected."""


class StoreUnavailable(StoreError):
    """The store is unreachable. Whether the last call took effect is unknown."""


@dataclass(frozen=True, slots=True)
class Node:
    data: bytes
    version: int
    czxid: int
    """The id of the transaction that created the node. It grows with every creation and serves as broker epoch."""
    mine: bool = False
    """An ephemeral node of this session."""


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes = b""
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: int = -1
    """-1: any version."""


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: int = -1


@dataclass(frozen=True, slots=True)
class Check:
    path: str
    version: int


Change = Create | SetData | Delete | Check


class SessionEvent(Enum):
    """A state change of the session that owns the ephemeral nodes."""

    CONNECTED = "connected"
    """Connected, for the first time or again. After EXPIRED it is a new session without ephemeral nodes."""
    SUSPENDED = "suspended"
    """Disconnected. The session may have expired already, and other clients may know that."""
    EXPIRED = "expired"
    """The session expired and its ephemeral nodes are gone. A new session is being opened."""


class MetadataStore(Protocol):
    """The tree of paths and JSON that a cluster keeps in ZooKeeper and a single broker in SQLite. The rules are ZooKeeper's."""

    multi_bytes_max: int
    """The limit on the bytes of paths and data in one `multi`."""

    async def get(self, path: str) -> Node | None: ...

    async def children(self, path: str) -> list[str]:
        """The sorted names below a path; empty if the path does not exist."""
        ...

    async def multi(self, changes: Sequence[Change]) -> list[str]:
        """Apply all changes or none. Returns the path of each (for a sequential create the one assigned)."""
        ...

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        """Call back with the path after each change of the node, its children or the session, possibly more often."""
        ...

    def unwatch(self, path: str, callback: Callable[[str], None]) -> None:
        """End a watch. A callback that is under way may still come."""
        ...

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        """Call back with each state change of the session. A store that cannot lose its session never calls."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class World:
    """The ports that a broker is given, except its metadata store."""

    clock: Clock
    random: Random
    disk: Disk
    workers: Workers
    network: Network
    descriptors: Descriptors = field(default_factory=UnlimitedDescriptors)
