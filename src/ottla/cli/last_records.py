"""From which offset to read the last N records of a partition.

The end of a transaction, an aborted record and a record that compaction removed have offsets too, so these are not counted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from ottla.cli.connection import Connection
from ottla.cli.find.batches import BatchSource
from ottla.cli.positions import TopicIndex
from ottla.records.batch import BatchInfo
from ottla.records.record import records_in
from ottla.types import TopicPartition

_FETCH_BYTES: Final = 256 << 10
_STEP_OFFSETS_MIN: Final = 1_000


def last_records(
    connection: Connection, bounds: Mapping[TopicIndex, tuple[int, int]], count: int, isolation: str
) -> dict[TopicIndex, int]:
    """For each partition the offset of the `count`-th last record in its bounds; their start if there are fewer."""
    source = BatchSource(connection, isolation)
    try:
        return {key: _look_back(source, TopicPartition(*key), start, end, count) for key, (start, end) in bounds.items()}
    finally:
        source.close()


def _look_back(source: BatchSource, where: TopicPartition, start: int, end: int, count: int) -> int:
    """Count the records of ever larger ranges of offsets, from the end to the start, until there are enough."""
    if not count:
        return end
    size = count
    while start < end:
        begin = max(start, end - size)
        batches = [_offsets(info, section, begin, end) for info, section in source.read(where, begin, end, _FETCH_BYTES)]
        for offsets in reversed(batches):
            if count <= len(offsets):
                return offsets[-count]
            count -= len(offsets)
        end, size = begin, max(2 * size, _STEP_OFFSETS_MIN)
    return start


def _offsets(info: BatchInfo, section: bytes, begin: int, end: int) -> Sequence[int]:
    """The offsets of the batch's records in [begin, end)."""
    if info.record_count == info.next_offset - info.base_offset:
        return range(max(info.base_offset, begin), min(info.next_offset, end))
    return [record.offset for record in records_in(section, info) if begin <= record.offset < end]
