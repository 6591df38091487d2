"""Builds the batches that the broker writes itself: records of coordinators, and transaction markers.

They need no validation. The bytes are those that `record.build_batch` builds and `validate.check` accepts. LogAppendTime is not
supported here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ottla.records.batch import CONTROL_BIT, MAGIC_V2, RECORDS_AT, TRANSACTIONAL_BIT, BatchInfo, write_header
from ottla.records.compression import NONE, compress
from ottla.records.control import marker_fields
from ottla.records.validate import Checked
from ottla.types import NO_LEADER_EPOCH, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP
from ottla.wire.varint import write_varint

if TYPE_CHECKING:
    from mypy_extensions import i64


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
    buffer = bytearray(RECORDS_AT)
    delta: i64 = 0
    size: i64 = 0
    for key, value in records:
        # attributes, timestamp delta and header count are one zero byte each; plus the offset delta
        size = 4 + len(key) + _size(len(key))
        if delta >= 64:
            size += _size(delta) - 1
        if value is None:
            size += 1
        else:
            size += len(value) + _size(len(value))
        write_varint(buffer, size)
        buffer += b"\0\0"
        write_varint(buffer, delta)
        write_varint(buffer, len(key))
        buffer += key
        if value is None:
            buffer.append(1)
        else:
            write_varint(buffer, len(value))
            buffer += value
        buffer.append(0)
        delta += 1
    if codec != NONE:
        packed = compress(codec, memoryview(buffer)[RECORDS_AT:], None)
        buffer = bytearray(RECORDS_AT)
        buffer += packed
    count: int = delta
    info = BatchInfo(
        0,
        len(buffer),
        0,
        NO_LEADER_EPOCH,
        MAGIC_V2,
        0,
        attributes,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        producer_id,
        producer_epoch,
        NO_SEQUENCE,
        count,
    )
    write_header(buffer, info)
    return Checked(buffer, [info], count, timestamp_ms, 0, NO_TIMESTAMP)


def _size(number: i64) -> i64:
    """The size of the zigzag varint of a number that is not negative."""
    size: i64 = 1
    left: i64 = number >> 6
    while left > 0:
        size += 1
        left >>= 7
    return size
