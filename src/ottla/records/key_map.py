"""The key table of a compaction pass: the last offset of each key, and the records that are replaced.

1. A key costs a slot of `SLOT_BYTES` and no object. The table grows page by page, so that no step takes long.
2. The memory is bounded when the table is created. The sets of offsets add at most a sixteenth of that each.
3. Interpreted and compiled code do the same: what leaves the range of int64 is masked to 63 bits.

A key is identified by 86 bits of a strongly universal ("multilinear") hash: the upper bits of three sums of its words times
secret numbers, which come from the interpreter's keyed hash. Two keys collide once in 2^86, even if a client chooses them. The
MD5 of Kafka is wider, and twenty times slower. Long keys use the interpreter's hash and a CRC.

The lowest bits of the hash select the page (extendible hashing); a full page is split in two.
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
"""The word behind the slots of a page: how many are used."""
_DEPTH: Final = _COUNT + 1
"""The next word: how many bits of the hash its keys share."""
_PAGE_WORDS: Final = _DEPTH + 1

_TAG_SHIFT: Final = 40
_OFFSET_MASK: Final = (1 << _TAG_SHIFT) - 1
OFFSET_RANGE: Final = _OFFSET_MASK - 1
"""The number of offsets that a table can hold."""

_WORDS_MAX: Final = 64
_INT63: Final = (1 << 63) - 1
_SECRETS: Final = vec[i64]([hash(b"%d of the key table" % number) & _INT63 for number in range(3 * (_WORDS_MAX + 2))])

_NO_PAGE: Final = vec[i64]()


class KeyMap:
    """The last offset of each key in a range of a log. A slot is two words: 63 bits of the hash, then 23 more and the offset."""

    def __init__(self, slots: int, entries_max: int, base_offset: int, offsets_max: int = 1 << 20) -> None:
        """`slots` is a power of two, at least SLOTS_MIN; offsets are in [base_offset, base_offset + OFFSET_RANGE).

        Replaced records are tracked for the first `offsets_max` of them.
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
        """All records up to this offset (inclusive) are in the table; later ones are retained. Callers advance it over gaps."""
        self.replaced = OffsetSet(base_offset, offsets_max)
        """Offsets of records that a later one replaces."""
        self.odd = OffsetSet(base_offset, offsets_max)
        """Base offsets of batches with records without a key or a value."""

    def put(self, key: bytes, offset: i64) -> bool:
        """Add a record at `offset`, the largest so far. False: the table is full, and unchanged."""
        return self.put_at(key, 0, len(key), offset)

    def get(self, key: bytes) -> i64:
        """The last offset of a key, -1 if there is none."""
        return self.get_at(key, 0, len(key))

    def put_at(self, data: bytes, start: i64, end: i64, offset: i64) -> bool:
        """As `put`; the key is `data[start:end]`."""
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
        """As `get`; the key is `data[start:end]`."""
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
        """63 bits of the hash; 23 others go to `_tag`."""
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
        """Split a page in two by one more bit of the hash."""
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
    """Add a new key to a page that has room."""
    at: i64 = (h >> 32 & _PAGE_MASK) * 2
    while page[at + 1] != 0:
        at = (at + 2) & (_PAGE_SLOTS * 2 - 1)
    page[at] = h
    page[at + 1] = word
    page[_COUNT] += 1
