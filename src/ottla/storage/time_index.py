"""The time index of a segment (`.timeindex`): from timestamp to offset, sparse.

An entry has 12 bytes: a timestamp (int64) and an offset relative to the base offset (int32), big-endian. Entry (t, o) means that
the batch with the last offset o has the timestamp t, and no batch before it has a larger one.

1. Timestamps increase strictly, offsets do not decrease.
2. The last entry of a sealed segment has the largest timestamp of the segment.
"""

from __future__ import annotations

import struct
import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

from ottla.storage.offset_index import INT32_MAX, CorruptIndex
from ottla.types import NO_TIMESTAMP, TimestampAndOffset

ENTRY_BYTES: Final = 12
_ENTRY = struct.Struct(">qi")


class TimeIndex:
    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._timestamps = array("q")
        self._offsets = array("i")
        self.persisted = 0

    @classmethod
    def parse(cls, base_offset: int, data: bytes) -> TimeIndex:
        """The entries of a file. Zeros at its end are unused entries, or entries that did not reach the disk."""
        if len(data) % ENTRY_BYTES:
            raise CorruptIndex(f"time index of {len(data)} bytes is no multiple of {ENTRY_BYTES}")
        index = cls(base_offset)
        used = -(-len(data.rstrip(b"\0")) // ENTRY_BYTES) * ENTRY_BYTES
        # Byte by byte for all entries at once: a large file has 250,000 entries.
        index._timestamps = _column("q", data[:used], 0)
        index._offsets = _column("i", data[:used], 8)
        _check_growth(index._timestamps, NO_TIMESTAMP + 1, 1, "timestamps")
        _check_growth(index._offsets, 0, 0, "offsets")
        index.persisted = len(index)
        return index

    def __len__(self) -> int:
        return len(self._offsets)

    def append(self, timestamp_ms: int, offset: int) -> None:
        """Add an entry, unless its timestamp is at or below the last one."""
        if timestamp_ms > (self._timestamps[-1] if self._timestamps else NO_TIMESTAMP):
            self._timestamps.append(timestamp_ms)
            self._offsets.append(offset - self.base_offset)

    def offset_before(self, timestamp_ms: int) -> int:
        """The offset from which to search for a timestamp."""
        slot = bisect_left(self._timestamps, timestamp_ms)
        return self.base_offset + (self._offsets[slot - 1] if slot else 0)

    def last(self) -> TimestampAndOffset:
        if not self._timestamps:
            return TimestampAndOffset(NO_TIMESTAMP, self.base_offset)
        return TimestampAndOffset(self._timestamps[-1], self.base_offset + self._offsets[-1])

    def truncate(self, offset: int) -> None:
        """Remove the entries at and behind an offset."""
        relative = offset - self.base_offset
        keep = bisect_right(self._offsets, relative - 1) if relative <= INT32_MAX else len(self)
        del self._timestamps[keep:]
        del self._offsets[keep:]
        self.persisted = min(self.persisted, keep)

    def entries(self) -> list[tuple[int, int]]:
        """(timestamp, offset) of each entry."""
        return [(timestamp, self.base_offset + offset) for timestamp, offset in zip(self._timestamps, self._offsets, strict=True)]

    def pending_bytes(self) -> bytes:
        """The entries that are not persisted, in the format of the file."""
        start = self.persisted
        return b"".join(map(_ENTRY.pack, self._timestamps[start:], self._offsets[start:]))


def _column(typecode: str, data: bytes, at: int) -> array[int]:
    """One field of all entries."""
    column = array(typecode)
    size = column.itemsize
    packed = bytearray(len(data) // ENTRY_BYTES * size)
    for byte in range(size):
        packed[byte::size] = data[at + byte :: ENTRY_BYTES]
    column.frombytes(packed)
    if sys.byteorder == "little":
        column.byteswap()
    return column


def _check_growth(values: array[int], least: int, step: int, name: str) -> None:
    for value in values:
        if value < least:
            raise CorruptIndex(f"{name} in a time index decrease to {value}, at least {least} was expected")
        least = value + step
