"""Shared by the storage tests: an in-memory disk that fails or loses power at any step, and builders of records."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from ottla.records.batch import BatchInfo, scan_batches
from ottla.records.record import Record, build_batch, read_records
from ottla.records.validate import Checked, Rules, check
from ottla.sim.kernel.machine import SeededRandom
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir, Loading
from ottla.storage.log import Log
from ottla.types import Buffer, TopicPartition

NOW_MS = 1_700_000_000_000
TP = TopicPartition("orders", 0)
TOPIC_ID = bytes(range(16))
RULES = Rules(timestamp_before_max_ms=1 << 62, timestamp_after_max_ms=1 << 62)


class PowerLoss(BaseException):
    """The machine loses power."""


@dataclass
class Inode:
    data: bytearray = field(default_factory=bytearray)
    durable: bytes = b""
    reserved_end: int = 0


class MemoryFile:
    def __init__(self, disk: MemoryDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode

    def size(self) -> int:
        return len(self._inode.data)

    def read(self, position: int, count: int) -> bytes:
        self._disk.reads += 1
        self._disk.read_bytes += count
        return bytes(self._inode.data[position : position + count])

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        data = b"".join(parts)
        torn = self._disk.step("write", self.path)
        if torn:
            data = data[: len(data) // 2]
        if len(self._inode.data) < position:
            self._inode.data.extend(bytes(position - len(self._inode.data)))
        self._inode.data[position : position + len(data)] = data
        if torn:
            raise torn

    def truncate(self, size: int) -> None:
        self._disk.check("truncate", self.path)
        del self._inode.data[size:]
        self._inode.data.extend(bytes(size - len(self._inode.data)))
        self._inode.reserved_end = 0

    def reserve(self, start: int, end: int) -> bool:
        assert len(self._inode.data) <= start < end
        self._disk.reservations.append((start, end))
        if self._disk.reserves:
            self._inode.reserved_end = end
        return self._disk.reserves

    def release(self) -> None:
        self._inode.reserved_end = 0

    def flush(self) -> None:
        self._disk.check("flush", self.path)
        self._inode.durable = bytes(self._inode.data)

    def fileno(self) -> int:
        raise OSError("no descriptor")

    def close(self) -> None:
        pass


class MemoryDisk:
    """Files in memory. `lose_power` drops what was not flushed; `fail(n, error)` makes the n-th change from now fail."""

    def __init__(self) -> None:
        self.names: dict[str, Inode] = {}
        self.durable_names: dict[str, Inode] = {}
        self.dirs: set[str] = {""}
        self.locked: set[str] = set()
        self.steps: list[str] = []
        self.reads = 0
        self.read_bytes = 0
        self.opens = 0
        self.reserves = True
        self.reservations: list[tuple[int, int]] = []
        self.free_bytes = 1 << 39
        self._fail_in: int | None = None
        self._error: BaseException = OSError(5, "Input/output error")
        self.broken: Callable[[str, str], bool] = lambda kind, path: False
        self.broken_errno = errno.EIO

    def fail(self, step: int, error: BaseException) -> None:
        self._fail_in, self._error = step, error

    def step(self, kind: str, path: str) -> BaseException | None:
        self.steps.append(f"{kind} {path}")
        if self.broken(kind, path):
            return OSError(self.broken_errno, f"{os.strerror(self.broken_errno)}: {path}")
        if self._fail_in is not None:
            self._fail_in -= 1
            if self._fail_in < 0:
                if not isinstance(self._error, PowerLoss):
                    self._fail_in = None
                return self._error
        return None

    def check(self, kind: str, path: str) -> None:
        error = self.step(kind, path)
        if error:
            raise error

    def lose_power(self) -> None:
        self._fail_in = None
        self.locked.clear()
        self.names = dict(self.durable_names)
        for inode in self.names.values():
            inode.data = bytearray(inode.durable)

    def die(self) -> None:
        """The process dies. Written data stays, also if it was not flushed."""
        self._fail_in = None
        self.locked.clear()

    # --- ports.Disk

    def open(self, path: str, *, create: bool = False) -> MemoryFile:
        self.opens += 1
        inode = self.names.get(path)
        if inode is None:
            if not create:
                raise FileNotFoundError(path)
            self.check("create", path)
            inode = self.names[path] = Inode()
        return MemoryFile(self, path, inode)

    def exists(self, path: str) -> bool:
        return path in self.names or path in self.dirs

    def size(self, path: str) -> int:
        if path not in self.names:
            raise FileNotFoundError(path)
        return len(self.names[path].data)

    def list(self, path: str) -> list[str]:
        prefix = path + "/"
        inside = [name[len(prefix) :] for name in [*self.names, *self.dirs] if name.startswith(prefix)]
        return sorted({name.partition("/")[0] for name in inside})

    def is_dir(self, path: str) -> bool:
        return path in self.dirs

    def make_dirs(self, path: str) -> None:
        self.dirs.add(path)

    def rename(self, source: str, target: str) -> None:
        self.check("rename", target)
        if source in self.dirs:
            self.dirs.remove(source)
            self.dirs.add(target)
            for name in [name for name in self.names if name.startswith(source + "/")]:
                self.names[target + name[len(source) :]] = self.names.pop(name)
        else:
            self.names[target] = self.names.pop(source)

    def remove(self, path: str) -> None:
        self.check("remove", path)
        if path not in self.names:
            raise FileNotFoundError(path)
        del self.names[path]

    def remove_tree(self, path: str) -> None:
        self.check("remove", path)
        self.dirs = {name for name in self.dirs if name != path and not name.startswith(path + "/")}
        self.names = {name: inode for name, inode in self.names.items() if not name.startswith(path + "/")}

    def flush_dir(self, path: str) -> None:
        self.check("flush_dir", path)
        here = {name for name in [*self.names, *self.durable_names] if name.rpartition("/")[0] == path}
        for name in here:
            if name in self.names:
                self.durable_names[name] = self.names[name]
            else:
                del self.durable_names[name]

    def at_once(self, calls: Sequence[Callable[[], object]]) -> None:
        for call in calls:
            call()

    def lock(self, path: str) -> MemoryFile:
        if path in self.locked:
            raise BlockingIOError(path)
        self.locked.add(path)
        disk = self

        class Lock(MemoryFile):
            def close(self) -> None:
                disk.locked.discard(path)

        return Lock(self, path, Inode())

    def usage(self, path: str) -> tuple[int, int]:
        return 1 << 40, self.free_bytes

    # --- for tests

    def content(self, path: str) -> bytes:
        return bytes(self.names[path].data)

    def put(self, path: str, data: bytes) -> None:
        inode = self.names.setdefault(path, Inode())
        inode.data = bytearray(data)


def seeded_random(seed: int = 1) -> SeededRandom:
    return SeededRandom(random.Random(seed))


def batch(*timestamps: int, size: int = 20, codec: int = 0, key: bytes = b"k", **options: Any) -> bytearray:
    """A batch with one record for each timestamp."""
    fields = [(key, bytes(size), [("h", b"v")], timestamp) for timestamp in timestamps]
    return bytearray(build_batch(fields, codec=codec, **options))


def checked(*timestamps: int, **options: Any) -> Checked:
    return check(batch(*timestamps, **options), RULES, NOW_MS)


def append(log: Log, *timestamps: int, leader_epoch: int = 0, now_ms: int = NOW_MS, **options: Any) -> int:
    """Append one batch; returns its first offset."""
    return log.append(checked(*timestamps, **options), leader_epoch, now_ms).first_offset


def open_dir(disk: object, path: str = "/data", **options: Any) -> DataDir:
    return DataDir.open(disk, path, 1, "cluster", seeded_random(), **options)  # type: ignore[arg-type]


def new_log(disk: object, config: LogConfig | None = None) -> tuple[DataDir, Log]:
    config = config if config is not None else LogConfig()
    data_dir = open_dir(disk)
    data_dir.load(lambda topic: config, NOW_MS)
    return data_dir, data_dir.create_log(TP, TOPIC_ID, config, NOW_MS)


def reopen(disk: object, config: LogConfig | None = None) -> tuple[DataDir, Log]:
    """Open the log as a broker does at start."""
    data_dir = open_dir(disk)
    config = config if config is not None else LogConfig()
    data_dir.load(lambda topic: config, NOW_MS)
    return data_dir, data_dir.logs[TP]


def recovered(disk: MemoryDisk, config: LogConfig | None = None) -> tuple[Log, Loading]:
    """The log of a broker that starts after a kill, and what the start tells."""
    disk.die()
    data_dir = open_dir(disk)
    config = config if config is not None else LogConfig()
    loading = data_dir.start_loading(lambda topic: config, NOW_MS)
    loading.work()
    data_dir.loaded(loading)
    return data_dir.logs[TP], loading


def read_batches(log: Log, start: int | None = None, max_bytes: int = 1 << 20) -> list[tuple[BatchInfo, bytes]]:
    """Every batch from an offset to the log end, by successive reads: the header and the bytes."""
    offset = log.log_start_offset if start is None else start
    found: list[tuple[BatchInfo, bytes]] = []
    while offset < log.log_end_offset:
        info = log.read(offset, max_bytes, log.log_end_offset, True)
        if not info.ranges:
            break
        (part,) = info.ranges
        data = part.file.read(part.position, part.size)
        batches, end = scan_batches(data)
        assert end == len(data) == info.size, "a read returns whole batches"
        found += [(batch, data[batch.position : batch.end]) for batch in batches]
        assert info.records_end_offset > offset
        offset = info.records_end_offset
    return found


def records_of(batches: list[tuple[BatchInfo, bytes]]) -> list[Record]:
    records = []
    for _, data in batches:
        (info,), _ = scan_batches(data)
        records += read_records(data, info)
    return records


def all_offsets(log: Log) -> list[int]:
    return [record.offset for record in records_of(read_batches(log))]
