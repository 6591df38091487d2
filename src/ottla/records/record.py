"""Records as values: reads them from batches, builds batches, finds records by timestamp.

For internal topics, timestamp lookups and tools; produce and fetch do not use it.

1. `validate.check` accepts what `build_batch` writes, except control batches and base offsets other than 0.
2. With LogAppendTime every record has the max timestamp of its batch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from ottla.errors import MalformedInput
from ottla.records import walk as walks
from ottla.records.batch import (
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    MAGIC_V2,
    RECORDS_AT,
    TRANSACTIONAL_BIT,
    BatchInfo,
    write_header,
)
from ottla.records.compression import DECOMPRESSED_BYTES_MAX, NONE, TooLarge, compress, decompress
from ottla.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, Buffer, TimestampAndOffset
from ottla.wire.varint import write_varint, write_varlong

if TYPE_CHECKING:
    from mypy_extensions import i64

Headers = Sequence[tuple[str, bytes | None]]
Fields = tuple[bytes | None, bytes | None, Headers, int]
"""Key, value, headers and timestamp of a record to build."""

_RECORDS_AT_ONCE: Final = 1 << 16
"""Records that a worker processes before it yields the interpreter: some hundred microseconds."""


class Record:
    """One record of a batch."""

    def __init__(
        self,
        offset: int,
        timestamp: int,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes | None]],
    ) -> None:
        self.offset = offset
        self.timestamp = timestamp
        self.key = key
        self.value = value
        self.headers = headers

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, Record)
            and self.offset == other.offset
            and self.timestamp == other.timestamp
            and self.key == other.key
            and self.value == other.value
            and self.headers == other.headers
        )

    def __hash__(self) -> int:
        return hash((self.offset, self.timestamp, self.key, self.value))

    def __repr__(self) -> str:
        return (
            f"Record(offset={self.offset}, timestamp={self.timestamp}, key={self.key!r}, value={self.value!r}, "
            f"headers={self.headers!r})"
        )


def records_section(buf: Buffer, info: BatchInfo, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> bytes:
    """The decompressed records of a batch, without the header."""
    section = memoryview(buf)[info.position + RECORDS_AT : info.end]
    if info.codec == NONE:
        return bytes(section)
    try:
        return decompress(info.codec, section, limit_bytes)
    except TooLarge as error:
        raise MalformedInput(str(error)) from None


def read_records(buf: Buffer, info: BatchInfo, limit_bytes: int = DECOMPRESSED_BYTES_MAX) -> list[Record]:
    """All records of a batch. Offsets may have gaps, from compaction. MalformedInput if the record count is wrong."""
    if info.record_count == 0:
        return []
    return records_in(records_section(buf, info, limit_bytes), info)


def records_in(data: bytes, info: BatchInfo) -> list[Record]:
    """All records of a batch out of its decompressed section."""
    if info.record_count < 0 or info.record_count * walks.RECORD_BYTES_MIN > len(data):
        raise MalformedInput(f"a batch claims {info.record_count} records in {len(data)} bytes")
    records: list[Record] = []
    position: i64 = 0
    end: i64 = 0
    try:
        for _ in range(info.record_count):
            end = walks.next_record(data, position)
            records.append(_read_record(data, position, end, info))
            position = end
    except IndexError:
        raise MalformedInput("a record runs past the end of its batch") from None
    if position != len(data):
        raise MalformedInput(f"{len(data) - position} bytes after the last of {info.record_count} records")
    return records


def _read_record(data: bytes, start: i64, end: i64, info: BatchInfo) -> Record:
    timestamp_delta: int = walks.timestamp_delta_at(data, start)
    timestamp = info.max_timestamp if info.is_log_append_time else info.base_timestamp + timestamp_delta
    offset_delta: int = walks.offset_delta_at(data, start)
    position: i64 = start + (walks.varint_at(data, start) & 7) + 1
    position = walks.varlong_end(data, position)
    position += walks.varint_at(data, position) & 7
    packed: i64 = walks.varint_at(data, position)
    position += packed & 7
    key = _slice(data, position, packed >> 3, end)
    position += len(key) if key is not None else 0
    packed = walks.varint_at(data, position)
    position += packed & 7
    value = _slice(data, position, packed >> 3, end)
    position += len(value) if value is not None else 0
    packed = walks.varint_at(data, position)
    after: i64 = walks.skip_headers(data, position, end, 0)
    if after != end:
        raise MalformedInput("a record does not end where its length says")
    position += packed & 7
    headers: list[tuple[str, bytes | None]] = []
    for _ in range((packed >> 3) >> 1):
        packed = walks.varint_at(data, position)
        position += packed & 7
        header_key = _slice(data, position, packed >> 3, end)
        assert header_key is not None
        position += len(header_key)
        packed = walks.varint_at(data, position)
        position += packed & 7
        header_value = _slice(data, position, packed >> 3, end)
        position += len(header_value) if header_value is not None else 0
        # brokers do not check header keys, so an invalid one must not make the record unreadable
        headers.append((header_key.decode("utf-8", "replace"), header_value))
    return Record(info.base_offset + offset_delta, timestamp, key, value, headers)


def _slice(data: bytes, position: i64, zigzag_length: i64, end: i64) -> bytes | None:
    if zigzag_length & 1 != 0:
        return None
    stop: i64 = position + (zigzag_length >> 1)
    if stop > end:
        raise MalformedInput("a field is longer than its record")
    return data[position:stop]


def build_batch(
    records: Sequence[Fields],
    *,
    base_offset: int = 0,
    codec: int = NONE,
    level: int | None = None,
    timestamp_type: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    leader_epoch: int = NO_LEADER_EPOCH,
    transactional: bool = False,
    control: bool = False,
) -> bytes:
    """Build one batch, with offsets from `base_offset` on.

    With timestamp type 1 (LogAppendTime) the append time is the largest of the timestamps.
    """
    base_timestamp = records[0][3] if records else -1
    max_timestamp = max((fields[3] for fields in records), default=-1)
    section = bytearray()
    for index, (key, value, headers, timestamp) in enumerate(records):
        _append_record(section, index, timestamp - base_timestamp, key, value, headers)
    packed: Buffer = compress(codec, section, level) if codec != NONE else section
    batch = bytearray(RECORDS_AT)
    batch += packed
    attributes = codec
    attributes |= LOG_APPEND_TIME_BIT if timestamp_type else 0
    attributes |= TRANSACTIONAL_BIT if transactional else 0
    attributes |= CONTROL_BIT if control else 0
    info = BatchInfo(
        position=0,
        size=len(batch),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        magic=MAGIC_V2,
        crc=0,
        attributes=attributes,
        last_offset_delta=len(records) - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=len(records),
    )
    write_header(batch, info)
    return bytes(batch)


def _append_record(
    section: bytearray,
    offset_delta: int,
    timestamp_delta: int,
    key: bytes | None,
    value: bytes | None,
    headers: Headers,
) -> None:
    body = bytearray(1)
    write_varlong(body, timestamp_delta)
    write_varint(body, offset_delta)
    _append_bytes(body, key)
    _append_bytes(body, value)
    write_varint(body, len(headers))
    for header_key, header_value in headers:
        _append_bytes(body, header_key.encode())
        _append_bytes(body, header_value)
    write_varint(section, len(body))
    section += body


def _append_bytes(out: bytearray, value: bytes | None) -> None:
    if value is None:
        out.append(1)
        return
    write_varint(out, len(value))
    out += value


def offset_of_timestamp(
    buf: Buffer,
    info: BatchInfo,
    target_ms: int,
    start_offset: int = 0,
    inline_bytes_max: int | None = None,
    let_others_run: Callable[[], None] | None = None,
) -> TimestampAndOffset | None:
    """The first record of a batch, from an offset on, with a timestamp of at least `target_ms` (W06).

    `TooLarge` if the batch may decompress to more than `inline_bytes_max`. `let_others_run` is called from time to time.
    """
    if info.record_count <= 0 or info.max_timestamp < target_ms:
        return None
    target_delta = target_ms - info.base_timestamp
    if info.is_log_append_time:
        target_delta = walks.INT64_MIN
    elif target_delta > walks.INT64_MAX:
        return None
    data = _bounded_section(buf, info, inline_bytes_max)
    least: i64 = max(target_delta, walks.INT64_MIN)
    start: i64 = max(start_offset - info.base_offset, 0)
    count: i64 = info.record_count
    seen: i64 = 0
    position: i64 = 0
    try:
        while seen < count:
            delta: i64 = walks.timestamp_delta_at(data, position)
            if delta >= least and (start == 0 or walks.offset_delta_at(data, position) >= start):
                return _place(data, info, position)
            position = walks.next_record(data, position)
            seen += 1
            if seen % _RECORDS_AT_ONCE == 0 and let_others_run is not None:
                let_others_run()
    except IndexError:
        raise MalformedInput(f"record {seen} runs past the end of its batch") from None
    return None


def offset_of_max_timestamp(
    buf: Buffer,
    info: BatchInfo,
    inline_bytes_max: int | None = None,
    let_others_run: Callable[[], None] | None = None,
) -> TimestampAndOffset:
    """The first record of a batch with its largest timestamp. `inline_bytes_max`, `let_others_run`: as above."""
    if info.record_count <= 0:
        return TimestampAndOffset(info.max_timestamp, info.last_offset)
    data = _bounded_section(buf, info, inline_bytes_max)
    count: i64 = 1 if info.is_log_append_time else info.record_count
    seen: i64 = 0
    position: i64 = 0
    largest: i64 = walks.INT64_MIN
    largest_at: i64 = 0
    try:
        while seen < count:
            delta: i64 = walks.timestamp_delta_at(data, position)
            if delta > largest:
                largest = delta
                largest_at = position
            position = walks.next_record(data, position)
            seen += 1
            if seen % _RECORDS_AT_ONCE == 0 and let_others_run is not None:
                let_others_run()
        return _place(data, info, largest_at)
    except IndexError:
        raise MalformedInput(f"record {seen} runs past the end of its batch") from None


def _bounded_section(buf: Buffer, info: BatchInfo, inline_bytes_max: int | None) -> bytes:
    if inline_bytes_max is None or info.codec == NONE:
        return records_section(buf, info)
    return decompress(info.codec, memoryview(buf)[info.position + RECORDS_AT : info.end], inline_bytes_max, True)


def _place(data: bytes, info: BatchInfo, position: i64) -> TimestampAndOffset:
    timestamp_delta: int = walks.timestamp_delta_at(data, position)
    offset_delta: int = walks.offset_delta_at(data, position)
    timestamp = info.max_timestamp if info.is_log_append_time else info.base_timestamp + timestamp_delta
    return TimestampAndOffset(timestamp, info.base_offset + offset_delta)
