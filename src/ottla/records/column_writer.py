"""Writes columns in Arrow's layout as record batches, for a Spark sink, without importing Arrow.

`BatchWriter` packs rows into batches of one partition, with the sequences of one producer.

1. Every row is in exactly one batch, in order; sequences continue from batch to batch without a gap.
2. A batch has at most `batch_bytes_max` bytes before compression, unless it has a single larger record.
3. `validate.check` accepts the batches.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, read_i32_le, read_i64_le

from ottla.records.batch import MAGIC_V2, RECORDS_AT, SEQUENCE_MAX, TRANSACTIONAL_BIT, BatchInfo, write_header
from ottla.records.compression import NONE, compress
from ottla.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

if TYPE_CHECKING:
    from mypy_extensions import i64

_COPY_BYTES_MAX: Final = 24


class BytesInput:
    """A column of bytes or strings in Arrow's layout: validity (one bit per row, lowest first), offsets (int32), data.

    `first` is Arrow's array offset: the first row in these buffers.
    """

    def __init__(self, validity: bytes | None, offsets: bytes, data: bytes, first: int = 0) -> None:
        self.validity = validity
        self.offsets = offsets
        self.data = data
        self.first: i64 = first

    def length_of(self, row: i64) -> i64:
        """-1 for null. IndexError if the row does not exist."""
        at: i64 = row + self.first
        validity = self.validity
        if validity is not None:
            bits: i64 = validity[at >> 3]
            if bits >> (at & 7) & 1 == 0:
                return -1
        start: i64 = _int32(self.offsets, at * 4)
        end: i64 = _int32(self.offsets, at * 4 + 4)
        size: i64 = len(self.data)
        if start < 0 or end < start or end > size:
            raise ValueError("offsets of a column point outside of its data")
        return end - start

    def start_of(self, row: i64) -> i64:
        start: i64 = _int32(self.offsets, (row + self.first) * 4)
        return start


class HeadersInput:
    """A column of header lists: validity, offsets and elements."""

    def __init__(self, validity: bytes | None, offsets: bytes, keys: BytesInput, values: BytesInput, first: int = 0) -> None:
        self.validity = validity
        self.offsets = offsets
        self.keys = keys
        self.values = values
        self.first: i64 = first

    def start_of(self, row: i64) -> i64:
        at: i64 = _int32(self.offsets, (row + self.first) * 4)
        return at

    def end_of(self, row: i64) -> i64:
        """The end of the row's elements; their start if it has none."""
        at: i64 = row + self.first
        validity = self.validity
        if validity is not None:
            bits: i64 = validity[at >> 3]
            if bits >> (at & 7) & 1 == 0:
                return self.start_of(row)
        end: i64 = _int32(self.offsets, at * 4 + 4)
        return end


class BatchWriter:
    """Writes batches for one partition. `add` returns the full ones, `finish` the last one."""

    def __init__(
        self,
        *,
        batch_bytes_max: int = 512 * 1024,
        codec: int = NONE,
        level: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
    ) -> None:
        self._batch_bytes_max: i64 = batch_bytes_max
        self._codec = codec
        self._level = level
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._transactional = transactional
        self.sequence = base_sequence
        """The base sequence of the next batch."""
        self.records = 0
        """The number of rows added so far."""
        self._section = BytesWriter()
        self._count: i64 = 0
        self._base_timestamp: i64 = 0
        self._max_timestamp: i64 = 0

    def add(
        self,
        rows: bytes | None,
        count: int,
        keys: BytesInput | None,
        values: BytesInput | None,
        *,
        headers: HeadersInput | None = None,
        timestamps: bytes | None = None,
        now_ms: int = 0,
        timestamp_units_per_ms: int = 1,
    ) -> list[bytearray]:
        """Add `count` rows: those with the indexes in `rows` (int32), or the first ones.

        `timestamps` are int64, 1,000 units per ms if they count microseconds; without them all rows have `now_ms`.
        """
        full: list[bytearray] = []
        total: i64 = count
        step: i64 = timestamp_units_per_ms
        now: i64 = now_ms
        limit: i64 = self._batch_bytes_max - RECORDS_AT
        index: i64 = 0
        row: i64 = 0
        timestamp: i64 = now
        key_size: i64 = -1
        value_size: i64 = -1
        header: i64 = 0
        headers_end: i64 = 0
        size: i64 = 0
        delta: i64 = 0
        used: i64 = 0
        while index < total:
            row = index
            if rows is not None:
                row = _int32(rows, index * 4)
                if row < 0:
                    raise IndexError("a row below 0")
            if timestamps is not None:
                timestamp = read_i64_le(timestamps, row * 8) // step
            key_size = -1 if keys is None else keys.length_of(row)
            value_size = -1 if values is None else values.length_of(row)
            header = 0
            headers_end = 0
            if headers is not None:
                header = headers.start_of(row)
                headers_end = headers.end_of(row)
            used = len(self._section)
            if self._count > 0:
                delta = timestamp - self._base_timestamp
                size = _body_size(self._count, delta, key_size, value_size, headers, header, headers_end)
                if used + size + _varint_size(size) > limit:
                    full.append(self._close())
            if self._count == 0:
                self._base_timestamp = timestamp
                self._max_timestamp = timestamp
                delta = 0
                size = _body_size(0, 0, key_size, value_size, headers, header, headers_end)
            elif timestamp > self._max_timestamp:
                self._max_timestamp = timestamp
            section = self._section
            _write_varint(section, size)
            section.append(0)
            _write_varint(section, delta)
            _write_varint(section, self._count)
            _write_varint(section, key_size)
            if key_size > 0 and keys is not None:
                _copy(section, keys.data, keys.start_of(row), key_size)
            _write_varint(section, value_size)
            if value_size > 0 and values is not None:
                _copy(section, values.data, values.start_of(row), value_size)
            _write_varint(section, headers_end - header)
            if headers is not None:
                while header < headers_end:
                    _write_field(section, headers.keys, header)
                    _write_field(section, headers.values, header)
                    header += 1
            self._count += 1
            index += 1
        self.records += count
        return full

    def finish(self) -> bytearray | None:
        """The last, incomplete batch, if there is one."""
        return self._close() if self._count > 0 else None

    def _close(self) -> bytearray:
        section = self._section.getvalue()
        count: int = self._count
        if self._codec != NONE:
            section = compress(self._codec, section, self._level)
        batch = bytearray(RECORDS_AT)
        batch += section
        info = BatchInfo(
            position=0,
            size=len(batch),
            base_offset=0,
            leader_epoch=NO_LEADER_EPOCH,
            magic=MAGIC_V2,
            crc=0,
            attributes=self._codec | (TRANSACTIONAL_BIT if self._transactional else 0),
            last_offset_delta=count - 1,
            base_timestamp=self._base_timestamp,
            max_timestamp=self._max_timestamp,
            producer_id=self._producer_id,
            producer_epoch=self._producer_epoch,
            base_sequence=self.sequence,
            record_count=count,
        )
        write_header(batch, info)
        if self.sequence != NO_SEQUENCE:
            self.sequence = (self.sequence + count) & SEQUENCE_MAX
        self._section = BytesWriter()
        self._count = 0
        return batch


def _int32(data: bytes, position: i64) -> i64:
    value: int = read_i32_le(data, position)
    return value


def _body_size(
    index: i64, delta: i64, key_size: i64, value_size: i64, headers: HeadersInput | None, header: i64, headers_end: i64
) -> i64:
    """The size of a record without its length field."""
    size: i64 = 1 + _varint_size(delta) + _varint_size(index) + _varint_size(key_size) + _varint_size(value_size)
    if key_size > 0:
        size += key_size
    if value_size > 0:
        size += value_size
    size += _varint_size(headers_end - header)
    if headers is not None:
        n: i64 = 0
        while header < headers_end:
            n = headers.keys.length_of(header)
            if n < 0:
                raise ValueError("a header without a key")
            size += _varint_size(n) + n
            n = headers.values.length_of(header)
            size += _varint_size(n)
            if n > 0:
                size += n
            header += 1
    return size


def _varint_size(value: i64) -> i64:
    """The size of a zigzag varint. Negative numbers are inverted, so that no shift leaves the range of int64."""
    if value < 0:
        value = ~value
    size: i64 = 1
    value >>= 6
    while value > 0:
        value >>= 7
        size += 1
    return size


def _write_varint(out: BytesWriter, value: i64) -> None:
    low: i64 = 0
    if value < 0:
        value = ~value
        low = 1
    b: i64 = (value & 63) << 1 | low
    value >>= 6
    while value > 0:
        out.append(b | 128)
        b = value & 127
        value >>= 7
    out.append(b)


def _write_field(out: BytesWriter, column: BytesInput, row: i64) -> None:
    size: i64 = column.length_of(row)
    _write_varint(out, size)
    if size > 0:
        _copy(out, column.data, column.start_of(row), size)


def _copy(out: BytesWriter, data: bytes, start: i64, size: i64) -> None:
    if size > _COPY_BYTES_MAX:
        out.write(data[start : start + size])
        return
    end: i64 = start + size
    while start < end:
        out.append(data[start])
        start += 1
