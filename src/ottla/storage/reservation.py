"""Preallocation of the active segment's .log file: on some file systems appends into allocated blocks are cheaper.

The blocks are behind the end of the file, so its size does not show them (`ports.File.reserve`). They are released when the
segment is sealed, closed or truncated, or idle for a while.

1. A small segment reserves nothing; any other at most as much again as it holds, so that a thousand partitions cannot reserve
   more than their records occupy.
2. Nothing is reserved beyond `segment.bytes`.
3. Nothing is reserved on a volume that is almost full: another log may need the space for its next write.
"""

from __future__ import annotations

from typing import Final

from ottla.ports import Disk, File

BEGIN_BYTES: Final = 1 << 20
"""A segment smaller than this reserves nothing."""
AHEAD_BYTES_MAX: Final = 8 << 20
FREE_BYTES_MIN: Final = 1 << 30
FREE_PART_MIN: Final = 20
"""The volume must have 1/20 of its bytes free."""


class Reservation:
    def __init__(self) -> None:
        self._end = 0
        self.next_at = BEGIN_BYTES
        """An append that ends behind this position extends the reservation first."""

    def extend(self, disk: Disk, dir: str, file: File, size: int, written_bytes: int, segment_bytes: int) -> None:
        """Before an append that takes the segment from `size` to `written_bytes`."""
        end = reserve_until(written_bytes, segment_bytes)
        self.next_at = written_bytes + AHEAD_BYTES_MAX  # if the reservation fails
        if end > written_bytes and is_free_enough(disk, dir) and file.reserve(max(size, self._end), end):
            self.next_at = self._end = end

    def release(self, file: File | None, size: int) -> None:
        """Release what is reserved behind `size`."""
        if self._end > size and file is not None:
            file.release()
        self.forget()

    def forget(self) -> None:
        """The file is truncated, which releases the blocks."""
        self._end = 0
        self.next_at = BEGIN_BYTES


def reserve_until(written_bytes: int, segment_bytes: int) -> int:
    """The end of the reservation once so many bytes are written; not beyond `written_bytes`: none."""
    return min(written_bytes + min(written_bytes, AHEAD_BYTES_MAX), segment_bytes)


def is_free_enough(disk: Disk, path: str) -> bool:
    try:
        total_bytes, usable_bytes = disk.usage(path)
    except OSError:
        return False
    return usable_bytes >= max(FREE_BYTES_MIN, total_bytes // FREE_PART_MIN)
