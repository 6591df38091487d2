"""What compaction does once per record: put its key into the table, and leave it out if a later record replaced it.

Owns: the two walks over the records of a batch (unpacked, as `bytes`). Never sees a file or a batch header, never decides how far
a log may be cleaned. Compiled by mypyc.

Invariants
1. Both walks can stop after some bytes and go on later: whoever runs them shares the interpreter with the broker.
2. Records that stay are copied as ranges of bytes, as long as possible; none becomes an object, nor does its key.
3. The interpreted and the compiled form do the same: no arithmetic here leaves the range of int64.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from ottla.errors import MalformedInput
from ottla.records.key_map import KeyMap
from ottla.records.walk import varint_at, varlong_at, varlong_end
from ottla.wire.varint import write_unsigned_varint, write_unsigned_varlong

if TYPE_CHECKING:
    from mypy_extensions import i64

DELTA_MAX: Final = 1 << 61
"""Timestamp deltas beyond are nobody's, and are not rebased."""
NO_DELTA: Final = -(2**63)


class Put:
    """One batch on its way into the table of keys."""

    __slots__ = ("_base_offset", "_data", "_start_offset", "position", "records")

    def __init__(self, data: bytes, base_offset: int, start_offset: int) -> None:
        """Records before `start_offset` are passed over."""
        self._data = data
        self._base_offset: i64 = base_offset
        self._start_offset: i64 = start_offset
        self.position: i64 = 0
        self.records: i64 = 0

    @property
    def is_done(self) -> bool:
        return self.position == len(self._data)

    def advance(self, keys: KeyMap, limit_bytes: i64) -> bool:
        """Put the keys of records until `limit_bytes` are behind. False: the table is full."""
        data = self._data
        base_offset: i64 = self._base_offset
        start_offset: i64 = self._start_offset
        position: i64 = self.position
        end: i64 = len(data)
        stop: i64 = position + limit_bytes
        if stop > end:
            stop = end
        record_end: i64 = 0
        packed: i64 = 0
        offset: i64 = 0
        n: i64 = 0
        key_end: i64 = 0
        records: i64 = 0
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
                records += 1
                if n & 1 == 0:
                    key_end = position + (n >> 1)
                    if key_end >= record_end:
                        raise MalformedInput("a key is longer than its record")
                    if offset >= start_offset and not keys.put_at(data, position, key_end, offset):
                        return False
                    if data[key_end] & 1 != 0:  # of the value's length: odd means that there is no value
                        keys.odd.add(base_offset)
                else:
                    keys.odd.add(base_offset)
                position = record_end
        except IndexError:
            raise MalformedInput("a record runs past the end of its batch") from None
        self.position = position
        self.records += records
        return True


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
        replaced = keys.replaced
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
                    elif replaced.covers(offset, offset):
                        keep = not replaced.has(offset)
                    else:
                        keep = offset >= keys.get_at(data, key_at, position)
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
