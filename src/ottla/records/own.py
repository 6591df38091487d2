"""Builds the batches that the broker writes itself: records of coordinators, and transaction markers.

They need no validation. The bytes are those that `record.build_batch` builds and `validate.check` accepts. LogAppendTime is not
supported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from librt.strings import BytesWriter, write_i16_be, write_i32_be, write_i64_be

from ottla.records.batch import CONTROL_BIT, LOG_OVERHEAD, MAGIC_V2, RECORDS_AT, TRANSACTIONAL_BIT, BatchInfo
from ottla.records.compression import NONE, compress
from ottla.records.control import marker_fields
from ottla.records.crc import crc32c
from ottla.records.validate import Checked
from ottla.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from ottla.wire.native import write_varint

if TYPE_CHECKING:
    from mypy_extensions import i64

_crc32c: Final[Any] = crc32c


def own_batch(
    records: Sequence[tuple[bytes, bytes | None]],
    timestamp_ms: int,
    codec: int = NONE,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
) -> Checked:
    """A batch of keys and values with one timestamp. With a producer id it is part of that producer's transaction."""
    attributes = codec if producer_id < 0 else codec | TRANSACTIONAL_BIT
    return _built(records, timestamp_ms, codec, attributes, producer_id, producer_epoch)


def own_marker(commit: bool, coordinator_epoch: int, producer_id: int, producer_epoch: int, timestamp_ms: int) -> Checked:
    """The control batch that commits or aborts a producer's transaction in a partition."""
    record = marker_fields(commit, coordinator_epoch)
    return _built([record], timestamp_ms, NONE, TRANSACTIONAL_BIT | CONTROL_BIT, producer_id, producer_epoch)


def _built(
    records: Sequence[tuple[bytes, bytes | None]],
    timestamp_ms: int,
    codec: int,
    attributes: int,
    producer_id: int,
    producer_epoch: int,
) -> Checked:
    section = _section(records)
    if codec != NONE:
        section = compress(codec, memoryview(section), None)
    count = len(records)
    size = RECORDS_AT + len(section)
    checked = BytesWriter()
    """What the CRC covers."""
    write_i16_be(checked, attributes)
    write_i32_be(checked, count - 1)
    write_i64_be(checked, timestamp_ms)
    write_i64_be(checked, timestamp_ms)
    write_i64_be(checked, producer_id)
    write_i16_be(checked, producer_epoch)
    write_i32_be(checked, NO_SEQUENCE)
    write_i32_be(checked, count)
    checked.write(section)
    rest = checked.getvalue()
    crc: int = _crc32c(rest)
    out = BytesWriter()
    write_i64_be(out, 0)
    write_i32_be(out, size - LOG_OVERHEAD)
    write_i32_be(out, NO_LEADER_EPOCH)
    out.append(MAGIC_V2)
    write_i32_be(out, crc if crc < 1 << 31 else crc - (1 << 32))
    out.write(rest)
    info = BatchInfo(
        0,
        size,
        0,
        NO_LEADER_EPOCH,
        MAGIC_V2,
        crc,
        attributes,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        count,
    )
    return Checked(bytearray(out.getvalue()), [info], count, timestamp_ms, 0, NO_TIMESTAMP)


def _section(records: Sequence[tuple[bytes, bytes | None]]) -> bytes:
    """The records of a batch, with no timestamp deltas and no headers."""
    out = BytesWriter()
    delta: i64
    for delta, (key, value) in enumerate(records):
        key_size: i64 = len(key)
        # attributes, timestamp delta and header count are one zero byte each
        size: i64 = 3 + _size(delta) + _size(key_size) + key_size
        if value is None:
            size += 1
        else:
            value_size: i64 = len(value)
            size += _size(value_size) + value_size
        write_varint(out, size << 1)
        out.append(0)
        out.append(0)
        write_varint(out, delta << 1)
        write_varint(out, key_size << 1)
        out.write(key)
        if value is None:
            out.append(1)
        else:
            write_varint(out, len(value) << 1)
            out.write(value)
        out.append(0)
    return out.getvalue()


def _size(number: i64) -> i64:
    """The size of the zigzag varint of a number that is not negative."""
    size: i64 = 1
    left: i64 = number >> 6
    while left > 0:
        size += 1
        left >>= 7
    return size
