"""The table of keys of a compaction: the last offset of each, and which records a later one replaced.

Owns: both. Never sees a file or a batch. Compiled by mypyc.

Invariants
1. A key costs a slot of `SLOT_BYTES` and no object. The table grows with its keys, a page at a time: no step of it takes long,
   and what is small fits the processor's cache.
2. Its memory is bounded by what was said when it was made; the sets of offsets come on top, a sixteenth of that at most each.
3. The interpreted and the compiled form do the same: what leaves the range of int64 is cut to 63 bits, which both do alike.

A key is known by 86 bits: three sums of its words times secret numbers, of which the upper bits count ("multilinear" hashing,
strongly universal). Two keys have the same 86 bits once in 2^86, whoever has chosen them, as long as the numbers are secret; they
come from the interpreter's own keyed hash. Five million keys share a slot by mistake once in six trillion tables. Kafka's MD5 is
wider still, and twenty times slower. Long keys have the interpreter's hash itself, and a CRC.

Pages are found by the lowest bits of the hash, as many as there are pages (extendible hashing); a page that is full becomes two.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from librt.strings import read_i32_le
from librt.vecs import vec
from mypy_extensions import i64

from ottla.records.offset_set import OffsetSet

SLOT_BYTES: Final = 16
_PAGE_SLOTS: Final = 4096
_PAGE_MASK: Final = _PAGE_SLOTS - 1
SLOTS_MIN: Final = _PAGE_SLOTS
_SPLIT_AT: Final = _PAGE_SLOTS * 3 // 4
_COUNT: Final = _PAGE_SLOTS * 2
"""Behind the slots of a page: how many are taken."""
_DEPTH: Final = _COUNT + 1
"""And how many bits of the hash its keys share."""
_PAGE_WORDS: Final = _DEPTH + 1

_TAG_SHIFT: Final = 40
_OFFSET_MASK: Final = (1 << _TAG_SHIFT) - 1
OFFSET_RANGE: Final = _OFFSET_MASK - 1
"""How many offsets one table can tell apart."""

_WORDS_MAX: Final = 64
_INT63: Final = (1 << 63) - 1
_SECRETS: Final = vec[i64]([hash(b"%d of the key table" % number) & _INT63 for number in range(3 * (_WORDS_MAX + 2))])

_NO_PAGE: Final = vec[i64]()


class KeyMap:
    """The last offset of each key in a range of a log. A slot is two words: 63 bits of the hash, then 23 more and the offset."""

    __slots__ = ("_depth", "_depth_max", "_mask", "_pages", "_tag", "base_offset", "entries_max", "latest_offset", "odd",
                 "replaced", "size")  # fmt: skip

    def __init__(self, slots: int, entries_max: int, base_offset: int, offsets_max: int = 1 << 20) -> None:
        """`slots` is a power of two, at least SLOTS_MIN; offsets lie in [base_offset, base_offset + OFFSET_RANGE).

        Of the first `offsets_max` of them it is known which were replaced.
        """
        assert slots >= SLOTS_MIN
        assert slots & (slots - 1) == 0
        assert entries_max < slots
        self._pages = vec[vec[i64]]([_new_page(0)])
        self._mask: i64 = 0
        self._depth: i64 = 0
        self._depth_max: i64 = (slots // _PAGE_SLOTS).bit_length() - 1
        self._tag: i64 = 0
        self.base_offset: i64 = base_offset
        self.entries_max: i64 = entries_max
        self.size: i64 = 0
        self.latest_offset: i64 = base_offset - 1
        """Up to here (inclusive) every record was put in: later ones are not judged. Whoever puts may move it over gaps."""
        self.replaced = OffsetSet(base_offset, offsets_max)
        """Offsets of records that were put in and whose key was put in again."""
        self.odd = OffsetSet(base_offset, offsets_max)
        """First offsets of batches that have to be looked into: they have records without a key or a value."""

    def put(self, key: bytes, offset: i64) -> bool:
        """Note that `key` has a record at `offset`, the largest so far. False: the table is full, and nothing was noted."""
        return self.put_at(key, 0, len(key), offset)

    def get(self, key: bytes) -> i64:
        """The last offset noted for a key, -1 if there is none."""
        return self.get_at(key, 0, len(key))

    def put_at(self, data: bytes, start: i64, end: i64, offset: i64) -> bool:
        """As `put`; the key lies in `data`, from `start` to `end`."""
        if offset - self.base_offset >= OFFSET_RANGE:
            return False
        h: i64 = self._hash(data, start, end)
        tag: i64 = self._tag
        page = self._pages[h & self._mask]
        at: i64 = (h >> 32 & _PAGE_MASK) * 2
        word: i64 = page[at + 1]
        while word != 0:
            if page[at] == h and word >> _TAG_SHIFT == tag:
                self.replaced.add((word & _OFFSET_MASK) - 1 + self.base_offset)
                page[at + 1] = tag << _TAG_SHIFT | (offset - self.base_offset + 1)
                self.latest_offset = offset
                return True
            at = (at + 2) & (_PAGE_SLOTS * 2 - 1)
            word = page[at + 1]
        if self.size >= self.entries_max:
            return False
        while page[_COUNT] >= _SPLIT_AT and page[_DEPTH] < self._depth_max:
            self._split(page, h)
            page = self._pages[h & self._mask]
        if page[_COUNT] >= _PAGE_SLOTS - 1:
            return False
        _fill(page, h, tag << _TAG_SHIFT | (offset - self.base_offset + 1))
        self.size += 1
        self.latest_offset = offset
        return True

    def get_at(self, data: bytes, start: i64, end: i64) -> i64:
        """As `get`; the key lies in `data`, from `start` to `end`."""
        h: i64 = self._hash(data, start, end)
        tag: i64 = self._tag
        page = self._pages[h & self._mask]
        at: i64 = (h >> 32 & _PAGE_MASK) * 2
        word: i64 = page[at + 1]
        while word != 0:
            if page[at] == h and word >> _TAG_SHIFT == tag:
                return (word & _OFFSET_MASK) - 1 + self.base_offset
            at = (at + 2) & (_PAGE_SLOTS * 2 - 1)
            word = page[at + 1]
        return -1

    def _hash(self, data: bytes, start: i64, end: i64) -> i64:
        """63 bits of a key; 23 others in `_tag`."""
        size: i64 = end - start
        if size > _WORDS_MAX * 4:
            key = data[start:end]
            self._tag = i64(crc32(key)) >> 9
            return hash(key) & _INT63
        secrets = _SECRETS
        a: i64 = (secrets[0] + secrets[3] * size) & _INT63
        b: i64 = (secrets[1] + secrets[4] * size) & _INT63
        c: i64 = (secrets[2] + secrets[5] * size) & _INT63
        word: i64 = 0
        number: i64 = 6
        while start + 4 <= end:
            word = i64(read_i32_le(data, start)) & 0xFFFFFFFF
            a = (a + secrets[number] * word) & _INT63
            b = (b + secrets[number + 1] * word) & _INT63
            c = (c + secrets[number + 2] * word) & _INT63
            number += 3
            start += 4
        if start < end:
            word = 0
            while start < end:
                word = word << 8 | data[start]
                start += 1
            a = (a + secrets[number] * word) & _INT63
            b = (b + secrets[number + 1] * word) & _INT63
            c = (c + secrets[number + 2] * word) & _INT63
        self._tag = c >> 40
        return (a >> 31) << 31 | b >> 32

    def _split(self, page: vec[i64], h: i64) -> None:
        """Make two of a page: one more bit of the hash tells its keys apart."""
        depth: i64 = page[_DEPTH]
        if depth == self._depth:
            half: i64 = 1 << depth
            pages = vec[vec[i64]]([_NO_PAGE] * (2 << depth))
            number: i64 = 0
            while number < half:
                pages[number] = self._pages[number]
                pages[number + half] = self._pages[number]
                number += 1
            self._pages = pages
            self._depth = depth + 1
            self._mask = (2 << depth) - 1
        zeros, ones = _new_page(depth + 1), _new_page(depth + 1)
        at: i64 = 0
        while at < _PAGE_SLOTS * 2:
            if page[at + 1] != 0:
                if page[at] >> depth & 1 != 0:
                    _fill(ones, page[at], page[at + 1])
                else:
                    _fill(zeros, page[at], page[at + 1])
            at += 2
        at = h & ((1 << depth) - 1)
        while at <= self._mask:
            if at >> depth & 1 != 0:
                self._pages[at] = ones
            else:
                self._pages[at] = zeros
            at += 1 << depth


def _new_page(depth: i64) -> vec[i64]:
    page = vec[i64]([0] * _PAGE_WORDS)
    page[_DEPTH] = depth
    return page


def _fill(page: vec[i64], h: i64, word: i64) -> None:
    """Put a key that is not there into a page that has room."""
    at: i64 = (h >> 32 & _PAGE_MASK) * 2
    while page[at + 1] != 0:
        at = (at + 2) & (_PAGE_SLOTS * 2 - 1)
    page[at] = h
    page[at + 1] = word
    page[_COUNT] += 1
