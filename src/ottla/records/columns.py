"""Reads record batches into columns in Arrow's layout, for Spark, without importing Arrow.

`BatchReader` fills `Columns` from the bytes of a fetch.

1. All columns have the same number of rows after every call that returns. After an exception they must not be used.
2. Rows are in offset order, each offset at least `start` and below `end`.
3. Control batches, and with `read_committed` the batches of aborted transactions, give no rows; `next_offset` is behind them.
4. An invalid batch, or one with a wrong CRC, is MalformedInput.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, write_i32_le, write_i64_le

from ottla.errors import MalformedInput
from ottla.records.batch import (
    LENGTH_AT,
    LOG_OVERHEAD,
    MAGIC_AT,
    MAGIC_V2,
    RECORDS_AT,
    BatchInfo,
    batch_crc_ok,
    header_at,
    read_batch_header,
)
from ottla.records.compression import DECOMPRESSED_BYTES_MAX
from ottla.records.control import ABORT, control_type
from ottla.records.record import read_records, records_section
from ottla.records.walk import RECORD_BYTES_MIN, varint_at, varlong_at, varlong_end
from ottla.types import Buffer

if TYPE_CHECKING:
    from mypy_extensions import i64

COLUMN_BYTES_MAX: Final = 0x7FFFFFFF
"""Arrow's offsets inside a column of bytes are int32."""
_COPY_BYTES_MAX: Final = 24
"""Up to this size copying byte by byte is faster than a slice."""


class BytesColumn:
    """A nullable column of bytes or strings: offsets (int32), data, and validity, one bit per row, lowest first."""

    def __init__(self) -> None:
        self.rows: i64 = 0
        self.nulls: i64 = 0
        self._size: i64 = 0
        self._bits: i64 = 0
        self._offsets = BytesWriter()
        self._data = BytesWriter()
        self._validity = BytesWriter()
        write_i32_le(self._offsets, 0)

    def add(self, source: bytes, start: i64, end: i64) -> None:
        """Add the bytes from `start` to `end` of `source`; a negative `start` is null."""
        if start < 0:
            self.nulls += 1
        else:
            if end - start > _COPY_BYTES_MAX:
                self._data.write(source[start:end])
            else:
                data = self._data
                at: i64 = start
                while at < end:
                    data.append(source[at])
                    at += 1
            self._size += end - start
            if self._size > COLUMN_BYTES_MAX:
                raise MalformedInput("a column has more than 2 GB")
            self._bits |= 1 << (self.rows & 7)
        size: int = self._size
        write_i32_le(self._offsets, size)
        self.rows += 1
        if self.rows & 7 == 0:
            self._validity.append(self._bits)
            self._bits = 0

    @property
    def size_bytes(self) -> int:
        return self._size

    def buffers(self) -> tuple[bytes | None, bytes, bytes]:
        """Validity (None if nothing is null), offsets and data: Arrow's order."""
        validity: bytes | None = None
        if self.nulls > 0:
            validity = self._validity.getvalue()
            if self.rows & 7 != 0:
                last: int = self._bits
                validity += bytes([last])
        return validity, self._offsets.getvalue(), self._data.getvalue()


class Columns:
    """Records as rows. Timestamps are in microseconds, as in Spark; headers are optional."""

    def __init__(self, with_headers: bool = False) -> None:
        self.with_headers = with_headers
        self.clear()

    def clear(self) -> None:
        self.rows: i64 = 0
        self.keys = BytesColumn()
        self.values = BytesColumn()
        self._offsets = BytesWriter()
        self._timestamps = BytesWriter()
        self._timestamp_types = BytesWriter()
        self.header_keys = BytesColumn()
        self.header_values = BytesColumn()
        self.headers_null: i64 = 0
        self._header_total: i64 = 0
        self._header_bits: i64 = 0
        self._header_counts = BytesWriter()
        self._header_validity = BytesWriter()
        write_i32_le(self._header_counts, 0)

    @property
    def size_bytes(self) -> int:
        return self.keys.size_bytes + self.values.size_bytes + self.header_values.size_bytes + 40 * self.rows

    def offsets(self) -> bytes:
        return self._offsets.getvalue()

    def timestamps_us(self) -> bytes:
        return self._timestamps.getvalue()

    def timestamp_types(self) -> bytes:
        """int32: 0 CreateTime, 1 LogAppendTime."""
        return self._timestamp_types.getvalue()

    def headers(self) -> tuple[bytes | None, bytes]:
        """Validity and offsets of the list of `header_keys` and `header_values`. Null for a record without headers."""
        validity: bytes | None = None
        if self.headers_null > 0:
            validity = self._header_validity.getvalue()
            if self.rows & 7 != 0:
                last: int = self._header_bits
                validity += bytes([last])
        return validity, self._header_counts.getvalue()

    def _add_headers(self, data: bytes, position: i64, end: i64) -> i64:
        """Add the headers whose count is at `position`. Returns the position behind them."""
        packed: i64 = varint_at(data, position)
        position += packed & 7
        if packed & 8 != 0:
            raise MalformedInput("a record has a negative number of headers")
        count: i64 = packed >> 4
        if count * 2 > end - position:
            raise MalformedInput(f"a record claims {count} headers, more than fit into it")
        seen: i64 = 0
        n: i64 = 0
        while seen < count:
            packed = varint_at(data, position)
            position += packed & 7
            if packed & 8 != 0:
                raise MalformedInput("a record has a header without a key")
            n = packed >> 4
            if position + n > end:
                raise MalformedInput("a field is longer than its record")
            self.header_keys.add(data, position, position + n)
            position += n
            packed = varint_at(data, position)
            position += packed & 7
            if packed & 8 != 0:
                self.header_values.add(data, -1, -1)
            else:
                n = packed >> 4
                if position + n > end:
                    raise MalformedInput("a field is longer than its record")
                self.header_values.add(data, position, position + n)
                position += n
            seen += 1
        if count > 0:
            self._header_bits |= 1 << (self.rows & 7)
        else:
            self.headers_null += 1
        self._header_total += count
        total: int = self._header_total
        write_i32_le(self._header_counts, total)
        if self.rows & 7 == 7:
            self._header_validity.append(self._header_bits)
            self._header_bits = 0
        return position

    def add_section(self, data: bytes, info: BatchInfo, start: int, end: int) -> None:
        """Add the decompressed records of a batch whose offsets are at least `start` and below `end`."""
        from_offset: i64 = start
        to_offset: i64 = end
        count: i64 = info.record_count
        size: i64 = len(data)
        if count < 0 or count * RECORD_BYTES_MIN > size:
            raise MalformedInput(f"a batch claims {info.record_count} records in {len(data)} bytes")
        base_offset: i64 = info.base_offset
        base_timestamp: i64 = info.base_timestamp
        append_time: bool = info.is_log_append_time
        kind: int = 1 if append_time else 0
        timestamp: i64 = info.max_timestamp
        keys = self.keys
        values = self.values
        offsets = self._offsets
        timestamps = self._timestamps
        kinds = self._timestamp_types
        with_headers = self.with_headers
        position: i64 = 0
        index: i64 = 0
        b: i64 = 0
        n: i64 = 0
        packed: i64 = 0
        record_end: i64 = 0
        offset: i64 = 0
        delta: i64 = 0
        key_start: i64 = 0
        key_end: i64 = 0
        value_start: i64 = 0
        value_end: i64 = 0
        try:
            while index < count:
                # varint n: generated by tests/unit/records/inline_varint.py, do not edit
                b = data[position]
                position += 1
                n = b
                if b >= 128:
                    b = data[position]
                    if b < 128:
                        position += 1
                        n += (b << 7) - 128
                    else:
                        packed = varint_at(data, position - 1)
                        n = packed >> 3
                        position += (packed & 7) - 1
                # end
                if n & 1 != 0:
                    raise MalformedInput(f"record {index} has a negative length")
                record_end = position + (n >> 1)
                if record_end > size:
                    raise MalformedInput(f"record {index} is longer than its batch")
                position += 1  # attributes: unused
                # varlong delta: generated by tests/unit/records/inline_varint.py, do not edit
                b = data[position]
                if b < 128:
                    position += 1
                    delta = b >> 1
                    if b & 1 != 0:
                        delta = ~delta
                elif data[position + 1] < 128:
                    b += (data[position + 1] << 7) - 128
                    position += 2
                    delta = b >> 1
                    if b & 1 != 0:
                        delta = ~delta
                else:
                    delta = varlong_at(data, position)
                    position = varlong_end(data, position)
                # end
                if not append_time:
                    timestamp = base_timestamp + delta
                # varint n: generated by tests/unit/records/inline_varint.py, do not edit
                b = data[position]
                position += 1
                n = b
                if b >= 128:
                    b = data[position]
                    if b < 128:
                        position += 1
                        n += (b << 7) - 128
                    else:
                        packed = varint_at(data, position - 1)
                        n = packed >> 3
                        position += (packed & 7) - 1
                # end
                if n & 1 != 0:
                    raise MalformedInput(f"record {index} has a negative offset delta")
                offset = base_offset + (n >> 1)
                # varint n: generated by tests/unit/records/inline_varint.py, do not edit
                b = data[position]
                position += 1
                n = b
                if b >= 128:
                    b = data[position]
                    if b < 128:
                        position += 1
                        n += (b << 7) - 128
                    else:
                        packed = varint_at(data, position - 1)
                        n = packed >> 3
                        position += (packed & 7) - 1
                # end
                key_start = -1
                if n & 1 == 0:
                    key_start = position
                    position += n >> 1
                key_end = position
                # varint n: generated by tests/unit/records/inline_varint.py, do not edit
                b = data[position]
                position += 1
                n = b
                if b >= 128:
                    b = data[position]
                    if b < 128:
                        position += 1
                        n += (b << 7) - 128
                    else:
                        packed = varint_at(data, position - 1)
                        n = packed >> 3
                        position += (packed & 7) - 1
                # end
                value_start = -1
                if n & 1 == 0:
                    value_start = position
                    position += n >> 1
                value_end = position
                if position >= record_end:
                    raise MalformedInput(f"record {index} does not end where its length says")
                if offset < from_offset or offset >= to_offset:
                    position = record_end
                    index += 1
                    continue
                if with_headers:
                    position = self._add_headers(data, position, record_end)
                    if position != record_end:
                        raise MalformedInput(f"record {index} does not end where its length says")
                position = record_end
                keys.add(data, key_start, key_end)
                values.add(data, value_start, value_end)
                write_i64_le(offsets, offset)
                write_i64_le(timestamps, timestamp * 1000)
                write_i32_le(kinds, kind)
                self.rows += 1
                index += 1
        except IndexError:
            raise MalformedInput(f"record {index} runs past the end of its batch") from None
        if position != size:
            raise MalformedInput(f"{size - position} bytes after the last of {count} records")


class BatchReader:
    """Reads the batches that a fetch of one partition returned, in steps."""

    def __init__(
        self,
        buffer: Buffer,
        start: int,
        end: int,
        aborted: list[tuple[int, int]] | None = None,
        read_committed: bool = True,
        check_crc: bool = True,
    ) -> None:
        """`aborted`: (producer id, first offset) of the fetch response."""
        self._buffer = buffer
        self._position = 0
        self._start = start
        self._end = end
        self._aborted = sorted(aborted or [], key=lambda entry: entry[1])
        self._aborting: set[int] = set()
        self._read_committed = read_committed
        self._check_crc = check_crc
        self.next_offset = start
        """The next fetch offset."""

    def end_offset(self) -> int:
        """The next fetch offset after all batches, from the headers alone: the next fetch can start early."""
        buffer = self._buffer
        end = len(buffer)
        position = self._position
        last = -1
        while end - position > MAGIC_AT:
            size = int.from_bytes(buffer[position + LENGTH_AT : position + LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
            if size < RECORDS_AT or size > end - position:
                break
            last = position
            position += size
        if last < 0 or buffer[last + MAGIC_AT] != MAGIC_V2:
            return self.next_offset
        return max(self.next_offset, header_at(buffer, last).next_offset)

    def fill(self, columns: Columns, rows_max: int, size_bytes_max: int) -> bool:
        """Read batches until the columns have that much. Returns whether more is left."""
        while self.next_offset < self._end:
            if columns.rows >= rows_max or columns.size_bytes >= size_bytes_max:
                return True
            if not self._read_batch(columns):
                return False
        return False

    def next_section(self) -> tuple[BatchInfo, bytes] | None:
        """The next batch that has rows, with its decompressed records. None if no whole one is left."""
        while self.next_offset < self._end:
            info = self._batch()
            if info is None:
                return None
            section = records_section(self._buffer, info, DECOMPRESSED_BYTES_MAX) if self._has_rows(info) else b""
            self._pass(info)
            if section:
                return info, section
        return None

    def _read_batch(self, columns: Columns) -> bool:
        info = self._batch()
        if info is None:
            return False
        if self._has_rows(info):
            columns.add_section(records_section(self._buffer, info, DECOMPRESSED_BYTES_MAX), info, self._start, self._end)
        self._pass(info)
        return True

    def _batch(self) -> BatchInfo | None:
        """The header of the batch at the position; None if no whole one is there."""
        buffer = self._buffer
        position = self._position
        if len(buffer) - position <= MAGIC_AT:
            return None
        size = int.from_bytes(buffer[position + LENGTH_AT : position + LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
        magic = buffer[position + MAGIC_AT]
        if magic != MAGIC_V2:
            raise MalformedInput(f"record batch of format {magic}: only format 2, of Kafka 0.11 and later, is read")
        if size > len(buffer) - position >= LOG_OVERHEAD:
            return None  # the last one may be incomplete
        info = read_batch_header(buffer, position)
        if self._check_crc and not batch_crc_ok(buffer, info):
            raise MalformedInput(f"the record batch at offset {info.base_offset} is corrupt: its CRC is wrong")
        return info

    def _has_rows(self, info: BatchInfo) -> bool:
        """To be asked once for each batch, in their order: it follows which producers abort."""
        wanted = info.record_count > 0 and info.last_offset >= self._start and info.base_offset < self._end
        return not self._is_skipped(info) and wanted

    def _pass(self, info: BatchInfo) -> None:
        self._position = info.position + info.size
        self.next_offset = max(self.next_offset, info.next_offset)

    def _is_skipped(self, info: BatchInfo) -> bool:
        if self._read_committed:
            while self._aborted and self._aborted[0][1] <= info.last_offset:
                self._aborting.add(self._aborted.pop(0)[0])
        if info.is_control:
            ends = info.producer_id in self._aborting and info.record_count > 0
            if ends and control_type(read_records(self._buffer, info)[0]) == ABORT:
                self._aborting.discard(info.producer_id)
            return True
        return info.is_transactional and info.producer_id in self._aborting
