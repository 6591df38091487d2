"""`ports.Disk` on the operating system's files.

Owns: descriptors. A file closes with `close()` or when nobody refers to it any more, so that a range of a removed file that is
still being sent stays readable until it is sent.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Final

from ottla.types import Buffer

_PARTS_MAX: Final = 1024
"""IOV_MAX of Linux and macOS."""
_NO_ATIME: Final[int] = getattr(os, "O_NOATIME", 0)
"""Without it, the first read after every write records the access time in the file system's journal, which costs as much as the
read."""
_FLUSHES_AT_ONCE: Final = 16
"""Concurrent fsyncs share one write of the file system's journal."""


class OsFile:
    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def size(self) -> int:
        return os.fstat(self._fd).st_size

    def read(self, position: int, count: int) -> bytes:
        data = os.pread(self._fd, count, position)
        if len(data) == count or not data:
            return data
        parts = [data]
        missing = count - len(data)
        while missing:  # a signal, or more than the kernel reads at once
            position += len(data)
            data = os.pread(self._fd, missing, position)
            if not data:
                break
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)

    def write(self, position: int, parts: Sequence[Buffer]) -> None:
        if len(parts) == 1:
            part = parts[0]
            written = os.pwrite(self._fd, part, position)
            if written == len(part):
                return
            rest: list[Buffer] = [memoryview(part)[written:]]
        else:
            rest = list(parts)
            written = 0
        position += written
        while rest:
            written = os.pwritev(self._fd, rest[:_PARTS_MAX], position)
            position += written
            while rest and written >= len(rest[0]):
                written -= len(rest[0])
                del rest[0]
            if written:
                rest[0] = memoryview(rest[0])[written:]

    def truncate(self, size: int) -> None:
        os.ftruncate(self._fd, size)

    def reserve(self, start: int, end: int) -> bool:
        from ottla.runtime import reservation  # most files never reserve

        return reservation.reserve(self._fd, start, end)

    def release(self) -> None:
        from ottla.runtime import reservation

        reservation.release(self._fd)

    def flush(self) -> None:
        os.fsync(self._fd)

    def fileno(self) -> int:
        if self._fd < 0:
            raise OSError(f"{self.path} is closed")
        return self._fd

    def close(self) -> None:
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()


class LockFile(OsFile):
    """Held until closed.

    A record lock, since a Java broker takes the same kind. It knows processes only: a second taker in this process would get it
    too, and would drop it for both by closing the file. So what this process holds is kept in a set, and looked up before the
    file is opened.
    """

    def __init__(self, path: str, fd: int) -> None:
        super().__init__(path, fd)
        self._key: tuple[int, int] | None = None

    def take(self) -> None:
        fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        stats = os.fstat(self._fd)
        self._key = (stats.st_dev, stats.st_ino)
        _held.add(self._key)

    def close(self) -> None:
        if self._key is not None:
            _held.discard(self._key)
            self._key = None
        super().close()


_held: set[tuple[int, int]] = set()


def _is_held(path: str) -> bool:
    try:
        stats = os.stat(path)
    except FileNotFoundError:
        return False
    return (stats.st_dev, stats.st_ino) in _held


class OsDisk:
    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        try:
            fd = os.open(path, flags | _NO_ATIME, 0o644)
        except PermissionError:  # O_NOATIME needs the owner of the file
            fd = os.open(path, flags, 0o644)
        return OsFile(path, fd)

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except FileNotFoundError:
            return False
        return True

    def size(self, path: str) -> int:
        return os.stat(path).st_size

    def list(self, path: str) -> list[str]:
        return sorted(os.listdir(path))

    def is_dir(self, path: str) -> bool:
        return os.path.isdir(path)

    def make_dirs(self, path: str) -> None:
        os.makedirs(path, exist_ok=True)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def remove(self, path: str) -> None:
        os.unlink(path)

    def remove_tree(self, path: str) -> None:
        shutil.rmtree(path)

    def flush_dir(self, path: str) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def at_once(self, calls: Sequence[Callable[[], object]]) -> None:
        if len(calls) < 2:
            for call in calls:
                call()
            return
        with ThreadPoolExecutor(min(len(calls), _FLUSHES_AT_ONCE), "flush") as pool:
            ended = [pool.submit(call) for call in calls]
        for call_ended in ended:
            call_ended.result()

    def lock(self, path: str) -> LockFile:
        if _is_held(path):
            raise BlockingIOError(errno.EWOULDBLOCK, "held by this process", path)
        file = LockFile(path, os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_CREAT, 0o644))
        try:
            file.take()
        except BaseException:
            file.close()
            raise
        return file

    def usage(self, path: str) -> tuple[int, int]:
        stats = os.statvfs(path)
        return stats.f_blocks * stats.f_frsize, stats.f_bavail * stats.f_frsize
