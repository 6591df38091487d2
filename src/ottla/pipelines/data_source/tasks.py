"""What one task of Spark reads: offset ranges, divided on the driver and read in a Python worker."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import StructType

from ottla.pipelines.data_source.offsets import OffsetRange, group_ranges, split_ranges
from ottla.pipelines.data_source.options import SourceOptions
from ottla.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

_TASK_RECORDS_MIN = 20_000
"""A task reads several ranges in turn until it has this many records."""


class TopicRanges(InputPartition):
    """The offset ranges of one task."""

    def __init__(self, ranges: Iterable[OffsetRange], topic_ids: Mapping[str, str]) -> None:
        # Plain tuples, so that unpickling in a worker imports nothing more.
        self.ranges = [(*entry.where, entry.start, entry.end, topic_ids.get(entry.where.topic)) for entry in ranges]

    def __repr__(self) -> str:
        return ", ".join(f"{topic}-{partition}: {start} to {end}" for topic, partition, start, end, _ in self.ranges)


def divide(ranges: list[OffsetRange], topic_ids: Mapping[str, str], options: SourceOptions) -> list[InputPartition]:
    """The ranges as input partitions, by minPartitions and maxRecordsPerPartition."""
    records_max = options.records_per_partition_max
    pieces = split_ranges(ranges, options.partitions_min, records_max)
    if options.partitions_min is not None:
        return [TopicRanges([entry], topic_ids) for entry in pieces]
    target = _TASK_RECORDS_MIN if records_max is None else min(_TASK_RECORDS_MIN, records_max)
    return [TopicRanges(group, topic_ids) for group in group_ranges(pieces, target)]


def read(options: SourceOptions, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """The rows of an input partition. Runs in a Python worker."""
    from pyspark.sql.pandas.types import to_arrow_schema

    from ottla.pipelines.data_source.fetching import read_ranges
    from ottla.pipelines.workers import exclude_imports_from_gc

    exclude_imports_from_gc()
    if not isinstance(partition, TopicRanges):
        return iter(())  # Spark passes a plain InputPartition if there is nothing to read
    entries = [
        (
            OffsetRange(TopicPartition(topic, number), start, end),
            base64.urlsafe_b64decode(topic_id + "==") if topic_id else ZERO_UUID,
        )
        for topic, number, start, end, topic_id in partition.ranges
    ]
    return read_ranges(options, entries, to_arrow_schema(schema, timezone="UTC"))
