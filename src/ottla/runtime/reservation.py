"""Blocks of a volume taken ahead of what is written to a file (`ports.File.reserve`), where that makes writing cheaper.

Owns: the system call, and where it helps. That is ext4: a write into blocks that the file has already need not look for room.
Other file systems have no use for it, or do such a thing by themselves; there nothing is asked of them. Never changes the size or
the bytes of a file, and never fails: whoever could not reserve writes as he would have.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Final

_MOUNTS: Final = "/proc/self/mountinfo"
_KEEP_SIZE: Final = 1
"""FALLOC_FL_KEEP_SIZE. Without it, as in `os.posix_fallocate`, the file would grow."""
_SECTOR_BYTES: Final = 512
"""The unit of `st_blocks`, whatever the file system's own."""

_helps: dict[int, bool] = {}
"""By device."""
_fallocate: Callable[[int, int, int, int], int] | None = None


def reserve(fd: int, start: int, end: int) -> bool:
    """See that the file has blocks for [start, end). False: it does not, and no harm is done."""
    if _stats_where_it_helps(fd) is None:
        return False
    global _fallocate
    if _fallocate is None:
        _fallocate = _find_fallocate()
    return _fallocate(fd, _KEEP_SIZE, start, end - start) == 0


def release(fd: int) -> None:
    """Give back the blocks behind the end of the file, if it has any. Nobody may be writing to it."""
    stats = _stats_where_it_helps(fd)
    if stats is None:
        return
    block_bytes = stats.st_blksize
    needed = -(-stats.st_size // block_bytes) * block_bytes
    if stats.st_blocks * _SECTOR_BYTES > needed:
        try:
            os.ftruncate(fd, stats.st_size)
        except OSError:
            pass  # if that matters, the next write meets it


def _stats_where_it_helps(fd: int) -> os.stat_result | None:
    try:
        stats = os.fstat(fd)
    except OSError:
        return None
    return stats if _helps_here(stats.st_dev) else None


def _helps_here(device: int) -> bool:
    known = _helps.get(device)
    if known is None:
        known = _helps[device] = sys.maxsize > 1 << 32 and file_system_of(device) == "ext4"  # an offset is 64 bits wide
    return known


def file_system_of(device: int) -> str | None:
    """The kind of file system that is mounted from a device, None if that cannot be told."""
    wanted = b"%d:%d" % (os.major(device), os.minor(device))
    try:
        with open(_MOUNTS, "rb") as mounts:
            for line in mounts:
                # id, parent, device, root, mount point, options, any number of optional fields, "-", kind, ...
                fields, _, described = line.partition(b" - ")
                if fields.split(b" ", 3)[2:3] == [wanted]:
                    return described.split(b" ", 1)[0].decode()
    except (OSError, UnicodeDecodeError):
        pass  # not Linux, or not shown
    return None


def _find_fallocate() -> Callable[[int, int, int, int], int]:
    """Looked for when it is needed: `ctypes` is nothing that a start should wait for."""
    import ctypes

    try:
        found = ctypes.CDLL(None).fallocate
    except (OSError, AttributeError):
        return lambda fd, mode, start, count: -1
    found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    found.restype = ctypes.c_int
    call: Callable[[int, int, int, int], int] = found
    return call
