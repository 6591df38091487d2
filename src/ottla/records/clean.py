"""What compaction does once per record: remember the last offset of each key, and leave out what a later record replaced.

Owns: the table of keys, and the two walks over the records of a batch (unpacked, as `bytes`). Never sees a file or a batch
header, never decides how far a log may be cleaned. Compiled by mypyc.

Invariants
1. The table's memory is fixed when it is made (`SLOT_BYTES` a slot, its pages taken when first used): a key costs no object.
2. Both walks can stop after some bytes and go on later: whoever runs them shares the interpreter with the broker.
3. Records that stay are copied as ranges of bytes, as long as possible; none becomes an object.
4. The interpreted and the compiled form do the same: no arithmetic here leaves the range of int64.

A key is known by 87 bits: the interpreter's own keyed hash of 64 bits, which nobody outside can aim at, and 23 bits of another.
Five million keys share a slot by mistake once in ten trillion tables; Kafka's MD5 is wider still, and five times slower.
"""

from __future__ import annotations

from typing import Final
from zlib import crc32

from librt.strings import read_i32_le
from librt.vecs import vec
from mypy_extensions import i64

from ottla.errors import MalformedInput
from ottla.records.walk import varint_at, varlong_at, varlong_end
from ottla.wire.varint import write_unsigned_varint, write_unsigned_varlong

SLOT_BYTES: Final = 16
SLOTS_MIN: Final = 1024

_PAGE_BITS: Final = 12
_PAGE_SLOTS: Final = 1 << _PAGE_BITS
_PAGE_MASK: Final = _PAGE_SLOTS - 1

_TAG_SHIFT: Final = 40
_TAG_MASK: Final = (1 << 23) - 1
_OFFSET_MASK: Final = (1 << _TAG_SHIFT) - 1
OFFSET_RANGE: Final = _OFFSET_MASK - 1
"""How many offsets one table can tell apart."""

_MIX_BYTES_MAX: Final = 256
_MIX: Final = 0x2C1B3C6D
"""Odd, and below 2^31: the product with 32 bits is an int64."""

DELTA_MAX: Final = 1 << 61
"""Timestamp deltas beyond are nobody's, and are not rebased."""
NO_DELTA: Final = -(2**63)


def _check_of(key: bytes) -> i64:
    """32 bits of a key that its hash does not know of: four bytes at a time where that is quicker than a call, else a CRC."""
    size: i64 = len(key)
    if size > _MIX_BYTES_MAX:
        crc: i64 = crc32(key)
        return crc
    check: i64 = 0x811C9DC5 ^ size
    word: i64 = 0
    at: i64 = 0
    while at + 4 <= size:
        word = i64(read_i32_le(key, at))
        check = ((check ^ (word & 0xFFFFFFFF)) * _MIX) & 0xFFFFFFFF
        check = check ^ (check >> 15)
        at += 4
    while at < size:
        check = ((check ^ key[at]) * _MIX) & 0xFFFFFFFF
        check = check ^ (check >> 15)
        at += 1
    return check


_NO_PAGE: Final = vec[i64]()


class KeyMap:
    """The last offset of each key in a range of a log. Open addressing; a slot is two words: the hash, then tag and offset."""

    __slots__ = ("_base_offset", "_mask", "_pages", "entries_max", "latest_offset", "size", "slots")

    def __init__(self, slots: int, entries_max: int, base_offset: int) -> None:
        """`slots` is a power of two, at least SLOTS_MIN; offsets lie in [base_offset, base_offset + OFFSET_RANGE)."""
        assert slots >= SLOTS_MIN
        assert slots & (slots - 1) == 0
        assert entries_max < slots
        page_count = (slots + _PAGE_SLOTS - 1) >> _PAGE_BITS
        self._pages = vec[vec[i64]]([_NO_PAGE] * page_count)
        self._mask: i64 = slots - 1
        self._base_offset: i64 = base_offset
        self.slots = slots
        self.entries_max: i64 = entries_max
        self.size: i64 = 0
        self.latest_offset: i64 = base_offset - 1
        """Up to here (inclusive) every record was put in: later ones are not judged. Whoever puts may move it over gaps."""

    def put(self, key: bytes, offset: i64) -> bool:
        """Note that `key` has a record at `offset`, the largest so far. False: the table is full, and nothing was noted."""
        h: i64 = hash(key)
        check: i64 = _check_of(key)
        tag: i64 = check & _TAG_MASK
        step: i64 = check >> 7 | 1
        mask: i64 = self._mask
        slot: i64 = h & mask
        pages = self._pages
        at: i64 = 0
        word: i64 = 0
        other: i64 = 0
        while True:
            page = pages[slot >> _PAGE_BITS]
            if len(page) == 0:
                page = vec[i64]([0] * (_PAGE_SLOTS * 2))
                pages[slot >> _PAGE_BITS] = page
            at = (slot & _PAGE_MASK) * 2
            word = page[at + 1]
            if word == 0:
                if self.size >= self.entries_max or offset - self._base_offset >= OFFSET_RANGE:
                    return False
                page[at] = h
                self.size += 1
                break
            if word >> _TAG_SHIFT == tag:
                other = page[at]
                if other == h:
                    if offset - self._base_offset >= OFFSET_RANGE:
                        return False
                    break
            slot = (slot + step) & mask
        page[at + 1] = tag << _TAG_SHIFT | (offset - self._base_offset + 1)
        self.latest_offset = offset
        return True

    def get(self, key: bytes) -> i64:
        """The last offset noted for a key, -1 if there is none."""
        h: i64 = hash(key)
        check: i64 = _check_of(key)
        tag: i64 = check & _TAG_MASK
        step: i64 = check >> 7 | 1
        mask: i64 = self._mask
        slot: i64 = h & mask
        pages = self._pages
        at: i64 = 0
        word: i64 = 0
        other: i64 = 0
        while True:
            page = pages[slot >> _PAGE_BITS]
            if len(page) == 0:
                return -1
            at = (slot & _PAGE_MASK) * 2
            word = page[at + 1]
            if word == 0:
                return -1
            if word >> _TAG_SHIFT == tag:
                other = page[at]
                if other == h:
                    return (word & _OFFSET_MASK) - 1 + self._base_offset
            slot = (slot + step) & mask


def put_records(keys: KeyMap, data: bytes, base_offset: i64, start_offset: i64, position: i64, limit_bytes: i64) -> i64:
    """Put the keys of the records from `position` on into the table, of those with offsets from `start_offset` on.

    Stops behind the record that reaches `limit_bytes`. Returns the position of the next record, or -1: the table is full.
    """
    end: i64 = len(data)
    stop: i64 = position + limit_bytes
    if stop > end:
        stop = end
    record_end: i64 = 0
    packed: i64 = 0
    offset: i64 = 0
    n: i64 = 0
    try:
        while position < stop:
            # as in `walk`: varints of one byte are read in place, most of them are
            n = data[position]
            if n < 128:
                position += 1
            else:
                packed = varint_at(data, position)
                n = packed >> 3
                position += packed & 7
            record_end = position + (n >> 1)
            if n & 1 != 0 or record_end > end:
                raise MalformedInput("a record's length is impossible")
            position += 1
            if data[position] < 128:
                position += 1
            else:
                position = varlong_end(data, position)
            packed = varint_at(data, position)
            offset = base_offset + (packed >> 4)
            position += packed & 7
            n = data[position]
            if n < 128:
                position += 1
            else:
                packed = varint_at(data, position)
                n = packed >> 3
                position += packed & 7
            if n & 1 == 0:
                if position + (n >> 1) > record_end:
                    raise MalformedInput("a key is longer than its record")
                if offset >= start_offset and not keys.put(data[position : position + (n >> 1)], offset):
                    return -1
            position = record_end
    except IndexError:
        raise MalformedInput("a record runs past the end of its batch") from None
    return position


class Filter:
    """One batch on its way through: which of its records stay."""

    __slots__ = (
        "_base_offset",
        "_data",
        "_keep_tombstones",
        "_latest_offset",
        "_out",
        "_run_start",
        "keyless",
        "max_timestamp_delta",
        "min_timestamp_delta",
        "position",
        "records",
        "retained",
        "tombstones",
    )

    def __init__(self, data: bytes, base_offset: int, latest_offset: int, keep_tombstones: bool) -> None:
        """`latest_offset`: records behind it stay unjudged. Without `keep_tombstones` records without a value go."""
        self._data = data
        self._base_offset: i64 = base_offset
        self._latest_offset: i64 = latest_offset
        self._keep_tombstones = keep_tombstones
        self._out = bytearray()
        self.position: i64 = 0
        self._run_start: i64 = 0
        """Where the records that stay and are not copied yet begin."""
        self.records: i64 = 0
        self.retained: i64 = 0
        self.tombstones: i64 = 0
        """Of those that stay."""
        self.keyless: i64 = 0
        """Records without a key: a compacted log has no place for them, they go."""
        self.max_timestamp_delta: i64 = NO_DELTA
        self.min_timestamp_delta: i64 = 0
        """Of those that stay; the smallest is at most 0."""

    def advance(self, keys: KeyMap, limit_bytes: i64) -> bool:
        """Judge records until `limit_bytes` are behind. True: that was the last."""
        data = self._data
        end: i64 = len(data)
        position: i64 = self.position
        run_start: i64 = self._run_start
        stop: i64 = position + limit_bytes
        if stop > end:
            stop = end
        base_offset: i64 = self._base_offset
        latest_offset: i64 = self._latest_offset
        keep_tombstones = self._keep_tombstones
        largest: i64 = self.max_timestamp_delta
        smallest: i64 = self.min_timestamp_delta
        records: i64 = 0
        retained: i64 = 0
        start: i64 = 0
        record_end: i64 = 0
        packed: i64 = 0
        delta: i64 = 0
        offset: i64 = 0
        n: i64 = 0
        b: i64 = 0
        key_at: i64 = 0
        try:
            while position < stop:
                start = position
                n = data[position]
                if n < 128:
                    position += 1
                else:
                    packed = varint_at(data, position)
                    n = packed >> 3
                    position += packed & 7
                record_end = position + (n >> 1)
                if n & 1 != 0 or record_end > end:
                    raise MalformedInput("a record's length is impossible")
                position += 1
                b = data[position]
                if b < 128:
                    position += 1
                    delta = b >> 1
                    if b & 1 != 0:
                        delta = ~delta
                else:
                    delta = varlong_at(data, position)
                    position = varlong_end(data, position)
                packed = varint_at(data, position)
                offset = base_offset + (packed >> 4)
                position += packed & 7
                n = data[position]
                if n < 128:
                    position += 1
                else:
                    packed = varint_at(data, position)
                    n = packed >> 3
                    position += packed & 7
                key_at = position
                if n & 1 == 0:
                    position += n >> 1
                if position >= record_end:
                    raise MalformedInput("a key is longer than its record")
                b = data[position]  # of the value's length: the lowest bit is its sign, and odd means that there is no value
                records += 1
                keep = True
                if offset <= latest_offset:
                    if n & 1 != 0:
                        self.keyless += 1
                        keep = False
                    elif b & 1 != 0 and not keep_tombstones:
                        keep = False
                    else:
                        keep = offset >= keys.get(data[key_at:position])
                position = record_end
                if keep:
                    retained += 1
                    if b & 1 != 0:
                        self.tombstones += 1
                    if delta > largest:
                        largest = delta
                    if delta < smallest:
                        smallest = delta
                else:
                    if start > run_start:
                        self._out += data[run_start:start]
                    run_start = record_end
        except IndexError:
            raise MalformedInput("a record runs past the end of its batch") from None
        self.position = position
        self._run_start = run_start
        self.records += records
        self.retained += retained
        self.max_timestamp_delta = largest
        self.min_timestamp_delta = smallest
        return position == end

    def section(self) -> bytes:
        """The records that stay, behind each other."""
        if self.retained == self.records:
            return self._data
        if self._run_start < len(self._data):
            self._out += self._data[self._run_start :]
        return bytes(self._out)


def rebase(data: bytes, shift: int) -> bytes:
    """The same records with `shift` added to each timestamp delta; each sum must lie within +-DELTA_MAX."""
    out = bytearray()
    end: i64 = len(data)
    moved: i64 = shift
    position: i64 = 0
    packed: i64 = 0
    body_at: i64 = 0
    record_end: i64 = 0
    rest_at: i64 = 0
    delta: i64 = 0
    folded: i64 = 0
    size: i64 = 0
    left: i64 = 0
    while position < end:
        packed = varint_at(data, position)
        body_at = position + (packed & 7)
        record_end = body_at + (packed >> 4)
        rest_at = varlong_end(data, body_at + 1)
        delta = varlong_at(data, body_at + 1) + moved
        folded = delta << 1
        if delta < 0:
            folded = ~folded
        size = 1
        left = folded >> 7
        while left > 0:
            size += 1
            left >>= 7
        # attributes, the new delta, and the rest as it was
        write_unsigned_varint(out, 2 * (1 + size + record_end - rest_at))
        out.append(data[body_at])
        write_unsigned_varlong(out, folded)
        out += data[rest_at:record_end]
        position = record_end
    return bytes(out)
