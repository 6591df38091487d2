"""Validates the records of a produce request, and converts them to the topic's timestamp type and codec (F18, F20-F23, W04, W07).

The order of the checks and the error codes are Kafka's. In addition it refuses batches that Kafka would store although they are
inconsistent: gaps between offset deltas in an uncompressed batch, unknown attribute bits, a transaction without a producer id.

1. `check` raises only `RecordsRefused`, and has then not changed the caller's buffer.
2. If nothing has to change, the producer's bytes are stored as they are, compressed or not.
3. In an accepted batch the CRC, record count, offset deltas and max timestamp agree with the records.
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
    SMALL_BYTES,
    BatchInfo,
    batch_crc_ok,
    header_at,
    write_header,
)
from ottla.records.compression import CODEC_NAMES, NONE, TooLarge, compress, decompress
from ottla.types import NO_PRODUCER_ID, NO_TIMESTAMP, Buffer
from ottla.wire.buffer import as_bytes

if TYPE_CHECKING:
    from mypy_extensions import i64

PRODUCER: Final = -1
"""compression.type=producer: batches keep the producer's codec."""

CREATE_TIME: Final = 0
LOG_APPEND_TIME: Final = 1

UNPACKED_BYTES_MAX: Final = 128 << 20
"""The limit on the decompressed size of a batch, on any topic."""
UNPACKED_BYTES_USUAL: Final = 32 << 20
UNPACKED_RATIO: Final = 32
"""The limit on a topic is this many times `max.message.bytes`, at least UNPACKED_BYTES_USUAL. Above it a producer gets
MESSAGE_TOO_LARGE; Java's splits the batch."""
UNPACKED_BYTES_HERE: Final = 4 << 20
"""Batches that decompress to more are checked in a worker: this much takes some ten milliseconds."""

RECORD_ERRORS_MAX: Final = 1000
"""The response names at most so many invalid records, so that it does not outgrow the request."""
_RECORDS_AT_ONCE: Final = 4096
_FAR: Final = 1 << 61
"""Times below it can be added and subtracted in 64 bits. Compiled code handles a number of 63 bits less cheaply."""


@dataclass(frozen=True)
class Rules:
    """The settings of a topic that concern validation."""

    max_message_bytes: int = 1048588
    compacted: bool = False
    timestamp_type: int = CREATE_TIME
    timestamp_before_max_ms: int = walks.INT64_MAX
    """Not negative; nor is the next one."""
    timestamp_after_max_ms: int = 3_600_000
    compression: int = PRODUCER
    compression_level: int | None = None
    """None: Kafka's default for the codec."""
    decompressed_bytes_max: int = UNPACKED_BYTES_USUAL


class Checked:
    """A valid batch, ready to be appended; its base offset is not assigned."""

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
        """Writable. The caller's buffer, if nothing had to change."""
        self.batches = batches
        self.record_count = record_count
        self.bytes = len(buffer)
        self.max_timestamp = max_timestamp
        self.offset_of_max_delta = offset_of_max_delta
        """The offset delta of the first record with the largest timestamp."""
        self.log_append_time_ms = log_append_time_ms
        """-1 with CreateTime."""


WRONG_CRC: Final = 1
WRONG_MAGIC: Final = 2
WRONG_OFFSET: Final = 3
NO_KEY: Final = 4
"""Faults of records that are counted apart."""


class RecordsRefused(KafkaError):
    """The records are invalid. `record_errors` names the invalid ones, if not all are."""

    def __init__(
        self, code: ErrorCode, detail: str, record_errors: list[tuple[int, str | None]] | None = None, fault: int = 0
    ) -> None:
        super().__init__(code, detail)
        self.fault = fault
        self.record_errors: list[tuple[int, str | None]] = record_errors if record_errors is not None else []


class MuchToUnpack(RecordsRefused):
    """The records decompress to more than `inline_bytes_max`: they have to be checked in a worker."""


def unpacked_bytes_max(max_message_bytes: int) -> int:
    """The limit on the decompressed size of a batch, by `max.message.bytes`."""
    return min(max(UNPACKED_RATIO * max_message_bytes, UNPACKED_BYTES_USUAL), UNPACKED_BYTES_MAX)


def check(
    records: Buffer,
    rules: Rules,
    now_ms: int,
    from_client: bool = True,
    inline_bytes_max: int = UNPACKED_BYTES_MAX,
    let_others_run: Callable[[], None] | None = None,
) -> Checked:
    """Validate the records of one partition in a produce request, or raise RecordsRefused.

    Without `from_client` they come from a coordinator of this broker, which writes with a client's producer id and no sequence.
    MuchToUnpack if they decompress to more than `inline_bytes_max`. `let_others_run` is called from time to time.
    """
    data: bytes | memoryview
    if len(records) <= SMALL_BYTES:
        data = as_bytes(records)
    else:
        data = memoryview(records) if isinstance(records, (bytes, bytearray)) else records
    info = _only_batch(data)
    _check_header(data, info, rules, from_client)
    codec = info.codec
    section = data[RECORDS_AT:]
    if codec != NONE:
        section = _decompress(section, codec, rules, inline_bytes_max)
    found = _check_records(section, info, rules, now_ms, let_others_run)

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
        buffer = _repack(bytes(section), info, rules)
    if attributes != info.attributes or max_timestamp != info.max_timestamp:
        info.attributes = attributes
        info.max_timestamp = max_timestamp
        write_header(buffer, info)
    return Checked(buffer, [info], info.record_count, max_timestamp, offset_of_max_delta, log_append_time_ms)


def _only_batch(records: Buffer) -> BatchInfo:
    """The only batch that a produce request may have for a partition."""
    size = len(records)
    if size <= MAGIC_AT:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "the request has no record batch")
    # shorter than a header: the magic tells whether it is an old format
    info = header_at(records if size >= RECORDS_AT else bytes(records) + bytes(RECORDS_AT), 0)
    if info.size < LEGACY_SIZE_MIN or info.magic < 0 or info.magic > MAGIC_V2:
        raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, f"a batch of format v{info.magic} cannot have {info.size} bytes")
    if info.magic < MAGIC_V2:
        detail = f"message format v{info.magic} is not supported, only v{MAGIC_V2} is"
        raise RecordsRefused(ErrorCode.INVALID_RECORD, detail, None, WRONG_MAGIC)
    if info.size > size:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"the batch has {info.size} bytes, only {size} were received")
    if info.size < RECORDS_AT:
        raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, f"a batch of {info.size} bytes is smaller than its header")
    if info.size < size:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"exactly one record batch is allowed, {size - info.size} bytes follow it")
    return info


def _check_header(records: Buffer, info: BatchInfo, rules: Rules, from_client: bool) -> None:
    if info.base_offset != 0:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"the base offset is {info.base_offset}, it must be 0", None, WRONG_OFFSET)
    if info.size > rules.max_message_bytes:
        raise _too_large(info.size, rules)
    if not batch_crc_ok(records, info):
        raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, f"the CRC {info.crc:#010x} of the batch is wrong", None, WRONG_CRC)
    if info.codec >= len(CODEC_NAMES):
        raise RecordsRefused(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"compression codec {info.codec} does not exist")
    if info.record_count <= 0 or info.last_offset_delta != info.record_count - 1:
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            f"record count {info.record_count} does not match last offset delta {info.last_offset_delta}",
        )
    if info.is_control:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "clients may not write control batches")
    if info.attributes & ~KNOWN_ATTRIBUTES or info.has_delete_horizon:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"attributes {info.attributes & 0xFFFF:#06x} are not allowed")
    if info.producer_id < NO_PRODUCER_ID:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, f"invalid producer id {info.producer_id}")
    if info.producer_id >= 0 and (info.producer_epoch < 0 or (from_client and info.base_sequence < 0)):
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            f"invalid epoch {info.producer_epoch} or sequence {info.base_sequence} of producer {info.producer_id}",
        )
    if info.is_transactional and info.producer_id < 0:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, "a transactional batch needs a producer id")
    if info.is_log_append_time:
        detail = "a producer may not set the timestamp type LogAppendTime"
        raise RecordsRefused(ErrorCode.INVALID_TIMESTAMP, detail, [(0, detail)])


def _decompress(packed: Buffer, codec: int, rules: Rules, inline_bytes_max: int) -> bytes:
    partly = inline_bytes_max < rules.decompressed_bytes_max
    try:
        return decompress(codec, packed, inline_bytes_max if partly else rules.decompressed_bytes_max, partly)
    except MalformedInput as error:
        raise RecordsRefused(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    except TooLarge as error:
        if partly:
            raise MuchToUnpack(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None
        # on this code a producer splits the batch and retries
        raise RecordsRefused(ErrorCode.MESSAGE_TOO_LARGE, str(error)) from None


def _check_records(
    section: bytes | memoryview,
    info: BatchInfo,
    rules: Rules,
    now_ms: i64,
    let_others_run: Callable[[], None] | None,
) -> walks.Walk:
    """Check the decompressed records in `section`. A memoryview is not copied as a whole: max.message.bytes bounds it."""
    delta_min: i64
    delta_max: i64
    if rules.timestamp_type == CREATE_TIME:
        # as deltas, so that no timestamp has to be computed per record
        delta_min = _difference(_earliest(rules, now_ms), info.base_timestamp)
        delta_max = _difference(_latest(rules, now_ms), info.base_timestamp)
    else:
        delta_min = walks.INT64_MIN
        delta_max = walks.INT64_MAX
    try:
        if not isinstance(section, bytes):
            found = walks.walk_view(section, info.record_count, delta_min, delta_max)
        elif let_others_run is None or info.record_count <= _RECORDS_AT_ONCE:
            found = walks.walk(section, info.record_count, delta_min, delta_max)
        else:
            found = walks.walk_view(memoryview(section), info.record_count, delta_min, delta_max, let_others_run)
    except MalformedInput as error:
        raise RecordsRefused(ErrorCode.INVALID_RECORD, str(error)) from None
    if found.out_of_range or (rules.compacted and found.null_keys):
        _refuse_records(
            bytes(section),
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
    if after_ms > _FAR and after_ms > walks.INT64_MAX - now_ms:
        return walks.INT64_MAX
    return now_ms + after_ms


def _difference(time_ms: i64, base_ms: i64) -> i64:
    """The difference of two times, limited to int64: a producer may send any base timestamp."""
    if -_FAR < base_ms < _FAR and -_FAR < time_ms < _FAR:
        return time_ms - base_ms
    if base_ms < 0:
        return time_ms - base_ms if time_ms <= walks.INT64_MAX + base_ms else walks.INT64_MAX
    return time_ms - base_ms if time_ms >= walks.INT64_MIN + base_ms else walks.INT64_MIN


def _refuse_records(
    section: bytes, info: BatchInfo, rules: Rules, earliest: int, latest: int, let_others_run: Callable[[], None] | None
) -> None:
    """Raise RecordsRefused with the invalid records. The structure of the section is valid."""
    errors: list[tuple[int, str | None]] = []
    bad_timestamp = False
    position: i64 = 0
    for index in range(info.record_count):
        delta: int = walks.timestamp_delta_at(section, position)
        timestamp = info.base_timestamp + delta
        message: str | None = None
        if rules.compacted and not walks.has_key_at(section, position):
            message = "a compacted topic does not accept records without a key"
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
    raise RecordsRefused(ErrorCode.INVALID_RECORD, f"{len(errors)} records are invalid: {errors[0][1]}", errors, NO_KEY)


def _repack(section: bytes, info: BatchInfo, rules: Rules) -> bytearray:
    """The records in the topic's codec. `info` gets their size; their header is written later."""
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
    return bytearray(records) if isinstance(records, bytes) or records.readonly else records


def _too_large(size: int, rules: Rules) -> RecordsRefused:
    return RecordsRefused(
        ErrorCode.MESSAGE_TOO_LARGE, f"the batch has {size} bytes, more than max.message.bytes={rules.max_message_bytes}"
    )
