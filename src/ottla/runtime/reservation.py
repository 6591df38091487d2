"""Preallocates blocks of a file (`ports.File.reserve`), on ext4 only.

A write into blocks that the file has already is cheaper on ext4; other file systems do not profit. The size and the bytes of the
file do not change, and a failure has no consequence.
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
    """Allocate the blocks of [start, end). False if they were not allocated."""
    if _stats_where_it_helps(fd) is None:
        return False
    global _fallocate
    if _fallocate is None:
        _fallocate = _find_fallocate()
    return _fallocate(fd, _KEEP_SIZE, start, end - start) == 0


def release(fd: int) -> None:
    """Release blocks beyond the end of the file. Nobody may be writing to it."""
    stats = _stats_where_it_helps(fd)
    if stats is None:
        return
    block_bytes = stats.st_blksize
    needed = -(-stats.st_size // block_bytes) * block_bytes
    if stats.st_blocks * _SECTOR_BYTES > needed:
        try:
            os.ftruncate(fd, stats.st_size)
        except OSError:
            pass  # the next write will fail too, if it matters


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
    """The type of the file system mounted from a device; None if it is unknown."""
    wanted = b"%d:%d" % (os.major(device), os.minor(device))
    try:
        with open(_MOUNTS, "rb") as mounts:
            for line in mounts:
                # id, parent, device, root, mount point, options, any number of optional fields, "-", kind, ...
                fields, _, described = line.partition(b" - ")
                if fields.split(b" ", 3)[2:3] == [wanted]:
                    return described.split(b" ", 1)[0].decode()
    except (OSError, UnicodeDecodeError):
        pass  # not Linux
    return None


def _find_fallocate() -> Callable[[int, int, int, int], int]:
    """On first use: importing `ctypes` would delay the start."""
    import ctypes

    try:
        found = ctypes.CDLL(None).fallocate
    except (OSError, AttributeError):
        return lambda fd, mode, start, count: -1
    found.argtypes = (ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64)
    found.restype = ctypes.c_int
    call: Callable[[int, int, int, int], int] = found
    return call
