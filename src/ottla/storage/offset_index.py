"""The offset index of a segment (`.index`): from offset to position in the .log file, sparse.

An entry has 8 bytes: the offset relative to the base offset and the position, both int32, big-endian. Entry (o, p) means that a
batch with the last offset o starts at position p.

1. Offsets and positions both increase strictly.
2. The first `persisted` entries are in the file; `pending_bytes` returns the others.
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final

ENTRY_BYTES: Final = 8
INT32_MAX: Final = (1 << 31) - 1


class CorruptIndex(Exception):
    """An index file does not fit its segment. It can be rebuilt from the .log file."""


class OffsetIndex:
    def __init__(self, base_offset: int) -> None:
        self.base_offset = base_offset
        self._offsets = array("i")
        self._positions = array("i")
        self.persisted = 0

    @classmethod
    def parse(cls, base_offset: int, data: bytes, log_size: int, check: bool = True) -> OffsetIndex:
        """The entries of a file. Zeros at its end are entries that Kafka allocated and did not use before a crash."""
        if len(data) % ENTRY_BYTES:
            raise CorruptIndex(f"offset index of {len(data)} bytes is no multiple of {ENTRY_BYTES}")
        both = array("i", data)
        if sys.byteorder == "little":
            both.byteswap()
        index = cls(base_offset)
        index._offsets = both[0::2]
        index._positions = both[1::2]
        while index._positions and index._positions[-1] == 0 == index._offsets[-1]:
            index._positions.pop()
            index._offsets.pop()
        index.persisted = len(index)
        if check:
            _check_growth(index._offsets, "offsets")
            _check_growth(index._positions, "positions")
        if index._positions and index._positions[-1] >= log_size:
            raise CorruptIndex(f"offset index points to {index._positions[-1]}, the log has {log_size} bytes")
        return index

    def __len__(self) -> int:
        return len(self._offsets)

    def append(self, offset: int, position: int) -> None:
        """Add an entry, unless it is at or below the last one."""
        relative = offset - self.base_offset
        if not self._offsets or relative > self._offsets[-1]:
            self._offsets.append(relative)
            self._positions.append(position)

    def position_of(self, offset: int) -> int:
        """The position from which to scan for an offset."""
        slot = bisect_right(self._offsets, self._relative(offset))
        return self._positions[slot - 1] if slot else 0

    def around(self, offset: int) -> tuple[int, int]:
        """Two positions: the batch of an offset starts behind the first one, and at or before the second one. Without an earlier
        entry the first is 0, where the batch may start too; without a later entry the second is -1."""
        slot = bisect_left(self._offsets, self._relative(offset))
        positions = self._positions
        return positions[slot - 1] if slot else 0, positions[slot] if slot < len(positions) else -1

    def _relative(self, offset: int) -> int:
        relative = offset - self.base_offset
        return relative if relative <= INT32_MAX else INT32_MAX

    def around_position(self, position: int) -> tuple[int, int]:
        """The last indexed batch that starts at or before a position, and the next indexed one; -1: there is none."""
        positions = self._positions
        slot = bisect_right(positions, position)
        return positions[slot - 1] if slot else 0, positions[slot] if slot < len(positions) else -1

    def last_position(self) -> int:
        return self._positions[-1] if self._positions else 0

    def truncate(self, offset: int) -> None:
        """Remove the entries at and behind an offset."""
        keep = bisect_left(self._offsets, offset - self.base_offset) if offset - self.base_offset <= INT32_MAX else len(self)
        del self._offsets[keep:]
        del self._positions[keep:]
        self.persisted = min(self.persisted, keep)

    def entries(self) -> list[tuple[int, int]]:
        """(offset, position) of each entry."""
        return [(self.base_offset + offset, position) for offset, position in zip(self._offsets, self._positions, strict=True)]

    def pending_bytes(self) -> bytes:
        """The entries that are not persisted, in the format of the file."""
        start = self.persisted
        both = array("i", bytes(ENTRY_BYTES * (len(self) - start)))
        both[0::2] = self._offsets[start:]
        both[1::2] = self._positions[start:]
        if sys.byteorder == "little":
            both.byteswap()
        return both.tobytes()


def _check_growth(values: array[int], name: str) -> None:
    previous = -1
    for value in values:
        if value <= previous:
            raise CorruptIndex(f"{name} in an index do not grow: {value} after {previous}")
        previous = value
