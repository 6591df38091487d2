"""A set of offsets within a range, one bit each, in pages that are allocated on first use.

Offsets outside of the range are ignored: check `covers` first.
"""

from __future__ import annotations

from typing import Final

from librt.vecs import vec
from mypy_extensions import i64, u8

_PAGE_BYTES: Final = 4096
_PAGE_SHIFT: Final = 15
"""From an offset to the number of its page: a page has eight offsets per byte."""
_PAGE_MASK: Final = (1 << _PAGE_SHIFT) - 1

_NO_PAGE: Final = vec[u8]()
_ONES: Final = bytes(byte.bit_count() for byte in range(256))


class OffsetSet:
    def __init__(self, base_offset: int, offsets_max: int) -> None:
        """The range is [base_offset, base_offset + offsets_max)."""
        self._base_offset: i64 = base_offset
        self._end_offset: i64 = base_offset + offsets_max
        self._pages = vec[vec[u8]]([_NO_PAGE] * ((offsets_max >> _PAGE_SHIFT) + 1))

    def covers(self, first_offset: i64, last_offset: i64) -> bool:
        """Whether the range includes all of these offsets."""
        return first_offset >= self._base_offset and last_offset < self._end_offset

    def add(self, offset: i64) -> None:
        if offset < self._base_offset or offset >= self._end_offset:
            return
        at: i64 = offset - self._base_offset
        page = self._pages[at >> _PAGE_SHIFT]
        if len(page) == 0:
            page = vec[u8]([0] * _PAGE_BYTES)
            self._pages[at >> _PAGE_SHIFT] = page
        at &= _PAGE_MASK
        bits: i64 = i64(page[at >> 3]) | 1 << (at & 7)
        page[at >> 3] = u8(bits)

    def has(self, offset: i64) -> bool:
        if offset < self._base_offset or offset >= self._end_offset:
            return False
        at: i64 = offset - self._base_offset
        page = self._pages[at >> _PAGE_SHIFT]
        if len(page) == 0:
            return False
        at &= _PAGE_MASK
        return i64(page[at >> 3]) >> (at & 7) & 1 != 0

    def count(self, first_offset: i64, last_offset: i64) -> i64:
        """How many of these offsets are in the set."""
        if first_offset < self._base_offset:
            first_offset = self._base_offset
        if last_offset >= self._end_offset:
            last_offset = self._end_offset - 1
        found: i64 = 0
        at: i64 = first_offset - self._base_offset
        last: i64 = last_offset - self._base_offset
        bits: i64 = 0
        while at <= last:
            page = self._pages[at >> _PAGE_SHIFT]
            if len(page) == 0:
                at = (at | _PAGE_MASK) + 1
                continue
            bits = i64(page[(at & _PAGE_MASK) >> 3]) >> (at & 7)
            if last - at < 7:  # mask the bits behind the last offset
                bits &= (1 << (last - at + 1)) - 1
            found += _ONES[bits]
            at = (at | 7) + 1
        return found
