"""The full check of what a producer wants stored (F18, F20-F23, W04, W07).

Owns: the decision whether a batch from a client may enter the log, and what has to change in it before (timestamps, codec).
Follows Apache Kafka's order of checks and its error codes; where Kafka would store something that contradicts itself (offset
deltas with gaps in an uncompressed batch, unknown attribute bits, a transaction without a producer id) this refuses it.
Never assigns offsets (`batch.stamp` does, in the log), never keeps anything of what was refused.

Invariants
1. `check` raises `RecordsRefused` and nothing else, and has then changed no byte of the caller's buffer.
2. If nothing must change, the producer's bytes are the ones stored, compressed section included.
3. After a pass the batch is whole: CRC right, record count, offset deltas and max timestamp are those of the records inside.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.records import walk as walks
from ottla.records.batch import (
    CODEC_MASK,
    KNOWN_ATTRIBUTES,
    LEGACY_SIZE_MIN,
    LOG_APPEND_TIME_BIT,
    MAGIC_AT,
    MAGIC_V2,
    RECORDS_AT,
    BatchInfo,
    batch_crc_ok,
    header_at,
    write_header,
)
from ottla.records.compression import CODEC_NAMES, NONE, TooLarge, compress, decompress
from ottla.types import NO_PRODUCER_ID, NO_TIMESTAMP, Buffer

if TYPE_CHECKING:
    from mypy_extensions import i64

PRODUCER: Final = -1
"""compression.type=producer: batches keep the codec they came with."""

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

UNPACKED_BYTES_MAX: Final = 128 << 20
"""What a batch may unpack to at most, on topics for large batches."""
UNPACKED_BYTES_USUAL: Final = 32 << 20
UNPACKED_RATIO: Final = 32
"""And on others: so much, or so many times what a batch may be. A producer whose batch unpacks to more is told that it is too
large, and Java's then splits it."""
UNPACKED_BYTES_HERE: Final = 4 << 20
"""Larger ones are not for a loop on which others wait: to unpack and check so much takes some ten milliseconds."""

RECORD_ERRORS_MAX: Final = 1000
"""Of a batch with more bad records than this the reply names the first ones only: a reply must not outgrow its request."""
_RECORDS_AT_ONCE: Final = 4096


@dataclass(frozen=True)
class Rules:
    """What a topic asks of the batches it stores."""

    max_message_bytes: int = 1048588
    compacted: bool = False
    timestamp_type: int = CREATE_TIME
    timestamp_before_max_ms: int = walks.INT64_MAX
    """Not negative, neither this nor the next."""
    timestamp_after_max_ms: int = 3_600_000
    compression: int = PRODUCER
    compression_level: int | None = None
    """None: Kafka's default for the codec."""
    decompressed_bytes_max: int = UNPACKED_BYTES_USUAL


class Checked:
    """A batch that may be stored, base offset not yet assigned."""

    __slots__ = ("batches", "buffer", "bytes", "log_append_time_ms", "max_timestamp", "offset_of_max_delta", "record_count")

    def __init__(
        self,
        buffer: bytearray | memoryview,
        batches: list[BatchInfo],
        record_count: int,
        max_timestamp: int,
        offset_of_max_delta: int,
        log_append_time_ms: int,
    ) -> None:
        self.buffer = buffer
        """Writable. The producer's own memory if nothing had to change."""
        self.batches = batches
        self.record_count = record_count
        self.bytes = len(buffer)
        self.max_timestamp = max_timestamp
        self.offset_of_max_delta = offset_of_max_delta
        """Offset, counted from the base offset, of the first record that has the largest timestamp."""
        self.log_append_time_ms = log_append_time_ms
        """-1 with CreateTime."""


class RecordsRefused(KafkaError):
    """Records that are not stored; names the records at fault where single ones are."""

    def __init__(self, code: ErrorCode, detail: str, record_errors: list[tuple[int, str | None]] | None = None) -> None:
        super().__init__(code, detail)
        self.record_errors: list[tuple[int, str | None]] = record_errors if record_errors is not None else []


class MuchToUnpack(RecordsRefused):
    """Nothing is wrong yet: the records unpack to more than was allowed for now. To be checked where it may take longer."""


def unpacked_bytes_max(max_message_bytes: int) -> int:
    """What batches may unpack to on a topic that takes them up to this size."""
    return min(max(UNPACKED_RATIO * max_message_bytes, UNPACKED_BYTES_USUAL), UNPACKED_BYTES_MAX)


def check(
    records: Buffer,
    rules: Rules,
    now_ms: int,
    from_client: bool = True,
    inline_bytes_max: int = UNPACKED_BYTES_MAX,
    let_others_run: Callable[[], None] | None = None,
) -> Checked:
    """Check the records of one partition in a produce request and make them ready for the log, or raise RecordsRefused.

    Not `from_client` are the records of a coordinator here: written in a producer's name, without a sequence.
    `inline_bytes_max`: what unpacks to more is MuchToUnpack. `let_others_run`: called now and then, if there is much to check.
    """
    info = _only_batch(records)
    _check_header(records, info, rules, from_client)
    codec = info.codec
    view = memoryview(records)[RECORDS_AT:]
    # Uncompressed it is looked at where it lies: max.message.bytes bounds it already.
    section = _decompress(view, codec, rules, inline_bytes_max) if codec != NONE else None
    found = _check_records(view, section, info, rules, now_ms, let_others_run)

    largest_delta: int = found.max_timestamp_delta
    offset_of_max_delta: int = found.max_index
    attributes = info.attributes
    max_timestamp = max(NO_TIMESTAMP, info.base_timestamp + largest_delta)
    log_append_time_ms = NO_TIMESTAMP
    if rules.timestamp_type == LOG_APPEND_TIME:
        attributes |= LOG_APPEND_TIME_BIT
        max_timestamp = log_append_time_ms = now_ms
        offset_of_max_delta = 0

    buffer: bytearray | memoryview
    if rules.compression in (PRODUCER, codec):
        buffer = _writable(records)
    else:
        attributes = attributes & ~CODEC_MASK | rules.compression
        buffer = _repack(bytes(view) if section is None else section, info, rules)
    if attributes != info.attributes or max_timestamp != info.max_timestamp:
        info.attributes = attributes
        info.max_timestamp = max_timestamp
        write_header(buffer, info)
    return Checked(buffer, [info], info.record_count, max_timestamp, offset_of_max_delta, log_append_time_ms)


def _only_batch(records: Buffer) -> BatchInfo:
    """The one batch that a produce request may hold for a partition."""
    size = len(records)
    if size <= MAGIC_AT:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "there is no record batch")
    # what is shorter than a header is no batch, but its first bytes tell what it wanted to be
    info = header_at(records if size >= RECORDS_AT else bytes(records) + bytes(RECORDS_AT), 0)
    if info.size < LEGACY_SIZE_MIN or info.magic < 0 or info.magic > MAGIC_V2:
        raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, f"there is no batch of format v{info.magic} and {info.size} bytes")
    if info.magic < MAGIC_V2:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"format v{info.magic} is not taken, only v{MAGIC_V2} is")
    if info.size > size:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"the batch is {info.size} bytes long, only {size} bytes have come")
    if info.size < RECORDS_AT:
        raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, f"a batch of {info.size} bytes is smaller than its header")
    if info.size < size:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"exactly one record batch is allowed, {size - info.size} bytes follow it")
    return info


def _check_header(records: Buffer, info: BatchInfo, rules: Rules, from_client: bool) -> None:
    if info.base_offset != 0:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"the base offset must be 0, it is {info.base_offset}")
    if info.size > rules.max_message_bytes:
        raise _too_large(info.size, rules)
    if not batch_crc_ok(records, info):
        raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, f"the CRC {info.crc:#010x} is not that of the batch")
    if info.codec >= len(CODEC_NAMES):
        raise RecordsRefused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"there is no compression codec {info.codec}")
    if info.record_count <= 0 or info.last_offset_delta != info.record_count - 1:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            f"{info.record_count} records and a last offset delta of {info.last_offset_delta} do not go together",
        )
    if info.is_control:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if info.attributes & ~KNOWN_ATTRIBUTES or info.has_delete_horizon:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"attributes {info.attributes & 0xFFFF:#06x} are not for clients")
    if info.producer_id < NO_PRODUCER_ID:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"there is no producer id {info.producer_id}")
    if info.has_producer_id and (info.producer_epoch < 0 or (from_client and info.base_sequence < 0)):
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            f"producer id {info.producer_id} with epoch {info.producer_epoch} and sequence {info.base_sequence}",
        )
    if info.is_transactional and not info.has_producer_id:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    if info.is_log_append_time:
        detail = "a producer may not set the timestamp type LogAppendTime"
        raise RecordsRefused(ErrorCode.INVALID_TIMESTAMP, detail, [(0, detail)])


def _decompress(packed: memoryview, codec: int, rules: Rules, inline_bytes_max: int) -> bytes:
    partly = inline_bytes_max < rules.decompressed_bytes_max
    try:
        return decompress(codec, packed, inline_bytes_max if partly else rules.decompressed_bytes_max, partly)
    except MalformedInput as error:
        raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    except TooLarge as error:
        if partly:
            raise MuchToUnpack(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
        # the code that makes a producer split the batch and try again
        raise RecordsRefused(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None


def _check_records(
    view: memoryview,
    section: bytes | None,
    info: BatchInfo,
    rules: Rules,
    now_ms: i64,
    let_others_run: Callable[[], None] | None,
) -> walks.Walk:
    """Check the records in `section`, or, where nothing had to be unpacked, in `view`."""
    delta_min: i64 = walks.INT64_MIN
    delta_max: i64 = walks.INT64_MAX
    if rules.timestamp_type == CREATE_TIME:
        # as deltas, so that no record's timestamp has to be computed
        delta_min = _difference(_earliest(rules, now_ms), info.base_timestamp)
        delta_max = _difference(_latest(rules, now_ms), info.base_timestamp)
    try:
        if section is None:
            found = walks.walk_view(view, info.record_count, delta_min, delta_max)
        elif let_others_run is None or info.record_count <= _RECORDS_AT_ONCE:
            found = walks.walk(section, info.record_count, delta_min, delta_max)
        else:
            found = walks.walk_view(memoryview(section), info.record_count, delta_min, delta_max, let_others_run)
    except MalformedInput as error:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, str(error)) from None
    if found.out_of_range or (rules.compacted and found.null_keys):
        _refuse_records(
            bytes(view) if section is None else section,
            info,
            rules,
            _earliest(rules, now_ms),
            _latest(rules, now_ms),
            let_others_run,
        )
    return found


def _earliest(rules: Rules, now_ms: i64) -> i64:
    before_ms: i64 = rules.timestamp_before_max_ms
    return now_ms - before_ms


def _latest(rules: Rules, now_ms: i64) -> i64:
    after_ms: i64 = rules.timestamp_after_max_ms
    return now_ms + after_ms if after_ms <= walks.INT64_MAX - now_ms else walks.INT64_MAX


def _difference(time_ms: i64, base_ms: i64) -> i64:
    """The difference of two times, as near as an int64 comes to it: a producer may name any base."""
    if base_ms < 0:
        return time_ms - base_ms if time_ms <= walks.INT64_MAX + base_ms else walks.INT64_MAX
    return time_ms - base_ms if time_ms >= walks.INT64_MIN + base_ms else walks.INT64_MIN


def _refuse_records(
    section: bytes, info: BatchInfo, rules: Rules, earliest: int, latest: int, let_others_run: Callable[[], None] | None
) -> None:
    """Name the records at fault. The section was walked before: its structure is sound."""
    errors: list[tuple[int, str | None]] = []
    bad_timestamp = False
    position: i64 = 0
    for index in range(info.record_count):
        delta: int = walks.timestamp_delta_at(section, position)
        timestamp = info.base_timestamp + delta
        message: str | None = None
        if rules.compacted and not walks.has_key_at(section, position):
            message = "a compacted topic takes no record without a key"
        elif rules.timestamp_type == CREATE_TIME and timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            message = f"timestamp {timestamp} is not within [{earliest}, {latest}]"
            bad_timestamp = True
        if message is not None:
            errors.append((index, message))
            if len(errors) == RECORD_ERRORS_MAX:
                break
        position = walks.next_record(section, position)
        if let_others_run is not None and index % _RECORDS_AT_ONCE == 0:
            let_others_run()
    if not errors:
        return
    if bad_timestamp:
        raise RecordsRefused(ErrorCode.INVALID_TIMESTAMP, "one or more records have a timestamp that is out of range", errors)
    raise RecordsRefused(ErrorCode.INVALID_RECORD, f"{len(errors)} records are not acceptable: {errors[0][1]}", errors)


def _repack(section: bytes, info: BatchInfo, rules: Rules) -> bytearray:
    """The records once more, in the topic's codec; `info` then has their size, and their header is yet to be written."""
    buffer = bytearray(RECORDS_AT)
    if rules.compression == NONE:
        buffer += section
    else:
        buffer += compress(rules.compression, section, rules.compression_level)
    if len(buffer) > rules.max_message_bytes:
        raise _too_large(len(buffer), rules)
    info.size = len(buffer)
    return buffer


def _writable(records: Buffer) -> bytearray | memoryview:
    if isinstance(records, bytearray):
        return records
    if isinstance(records, memoryview) and not records.readonly:
        return records
    return bytearray(records)


def _too_large(size: int, rules: Rules) -> RecordsRefused:
    return RecordsRefused(
        ErrorCode.MESSAGE_TOO_LARGE, f"the batch is {size} bytes long, more than the allowed {rules.max_message_bytes}"
    )
