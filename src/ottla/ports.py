"""Everything outside the process, as the broker sees it.

Each port is a `Protocol`. `ottla.runtime` implements them with the real world, `ottla.sim` with a seeded, virtual one; no other
room may touch a clock, a disk, a socket or a source of randomness. A fault of the outside world is an `OSError` (disk, network)
or a `StoreError` (metadata): the ports invent no others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Protocol, TypeVar

from ottla.types import Buffer

if TYPE_CHECKING:
    import asyncio

T = TypeVar("T")


class Clock(Protocol):
    """Wall time for what is written down, monotonic time for what is measured. Timers belong to the event loop."""

    def now_ms(self) -> int: ...

    def monotonic(self) -> float: ...


class Random(Protocol):
    def bytes(self, count: int) -> bytes: ...

    def below(self, limit: int) -> int:
        """A number in [0, limit)."""
        ...


class Workers(Protocol):
    """Where work that blocks (fsync, recovery of a log) is done, so that the loop goes on."""

    async def run(self, work: Callable[[], T]) -> T: ...

    def let_others_run(self) -> None:
        """Inside of work that computes: the loop has its turn, if it wants one."""
        ...


class File(Protocol):
    """An open file. Reads and writes name their position; there is no cursor."""

    path: str

    def size(self) -> int: ...

    def read(self, position: int, count: int) -> bytes:
        """Up to `count` bytes; fewer only at the end of the file."""
        ...

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        """All of the parts, one after the other, or an OSError."""
        ...

    def truncate(self, size: int) -> None:
        """Room reserved behind the new end goes back to the volume."""
        ...

    def reserve(self, start: int, end: int) -> bool:
        """Take room on the volume for [start, end), so that writing there costs less; size and bytes stay as they are. False:
        none was taken, because there is none or it would not help. Never an error."""
        ...

    def release(self) -> None:
        """Give back room behind the end of the file, whoever reserved it. Nobody writes meanwhile. Never an error."""
        ...

    def flush(self) -> None:
        """Durable once this returns (fsync)."""
        ...

    def fileno(self) -> int:
        """For `sendfile`; a virtual file has none and raises OSError."""
        ...

    def close(self) -> None: ...


class Disk(Protocol):
    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError unless it exists or `create`."""
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
        """Flushes that need no order among them: a disk takes many that come together as one. Returns when all have ended, and
        raises an OSError of one of them."""
        ...

    def lock(self, path: str) -> File:
        """Take the lock file, or BlockingIOError if another process holds it. Held until closed."""
        ...

    def usage(self, path: str) -> tuple[int, int]:
        """(total bytes, usable bytes) of the volume."""
        ...


@dataclass(slots=True, unsafe_hash=True)
class FileRange:
    """Bytes of a file that go to a socket without being read here. Never changed; not frozen, because that makes it slow to make,
    and every fetch makes one."""

    file: File
    position: int
    size: int


Part = Buffer | FileRange


class Network(Protocol):
    """Listening, connecting, and the one thing asyncio's transports lack: bytes of a file to a socket."""

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> Listener: ...

    async def connect(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> asyncio.Transport: ...

    def file_sender(self, transport: asyncio.Transport) -> FileSender: ...


class Listener(Protocol):
    @property
    def port(self) -> int:
        """The port bound, also when port 0 was asked for."""
        ...

    def close(self) -> None: ...


class FileSender(Protocol):
    """Sends file ranges on one transport, each behind some bytes. Used only while the transport's write buffer is empty."""

    def send(self, head: Buffer, part: FileRange, sent: Callable[[OSError | None], None]) -> bool:
        """Start sending. True: all sent already. False: `sent` is called when all is sent, or with what prevents it."""
        ...

    def close(self) -> None: ...


class StoreError(Exception):
    """The metadata store refused a change or cannot be reached."""


class NoNode(StoreError):
    """A path that must exist does not."""


class NodeExists(StoreError):
    """A path that must not exist does."""


class BadVersion(StoreError):
    """Somebody else changed the node in between."""


class StoreUnavailable(StoreError):
    """The store is out of reach: the outcome of the last call may be unknown."""


@dataclass(frozen=True, slots=True)
class Node:
    data: bytes
    version: int
    czxid: int
    """The store's transaction that created the node; grows with every creation, serves as broker epoch."""
    mine: bool = False
    """An ephemeral node of this very session."""


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
    """-1: whatever it is."""


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
    """What became of the session on which ephemeral nodes hang."""

    CONNECTED = "connected"
    """In touch with the store (again). After EXPIRED: by another session, which owns nothing yet."""
    SUSPENDED = "suspended"
    """Out of touch. The session may be over already, and others may know that."""
    EXPIRED = "expired"
    """The session is over and its ephemeral nodes are gone; a new one is being opened."""


class MetadataStore(Protocol):
    """The tree of paths and JSON that a cluster keeps in ZooKeeper and a single broker in SQLite.

    Parents must exist before children, a node with children cannot be deleted, an ephemeral node goes with the session: the
    rules are ZooKeeper's.
    """

    multi_bytes_max: int
    """How many bytes of paths and data one `multi` may carry."""

    async def get(self, path: str) -> Node | None: ...

    async def children(self, path: str) -> list[str]:
        """Sorted names below a path; empty where the path does not exist."""
        ...

    async def multi(self, changes: Sequence[Change]) -> list[str]:
        """All of the changes or none. Returns for each the path it touched (a sequential create: the one given)."""
        ...

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        """Call back with the path after each change of the node, of its children, or of the session; more often is allowed."""
        ...

    def unwatch(self, path: str, callback: Callable[[str], None]) -> None:
        """No more of that; one that is on its way may still come."""
        ...

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        """Call back with what becomes of the session from now on. A store that cannot lose its session never does."""
        ...

    async def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class World:
    """All ports together: what a broker is given to live in."""

    clock: Clock
    random: Random
    disk: Disk
    workers: Workers
    network: Network
