"""`format("ottla")`: topics as a source of batch and streaming queries, on PySpark's Python Data Source API. No jars.

Owns: what Spark asks of a source. The columns and options are those of Spark's own Kafka source (`source_options`), with two
differences: only committed records are read unless `kafka.isolation.level` says otherwise, and if `kafka.group.id` names a group
the offsets of every finished micro-batch are committed to it, so that lag tools see the query. It works with any Kafka.

Where things run: a `DataSource` is made in a process of the driver and pickled; a stream's reader lives in another, long-lived
one; `read` runs in the workers of executors. So what is kept here is plain data, and connections are opened where they are used.

A schema given by the user chooses among the columns (`.schema("value string, offset long")`); key and value may be string.
"""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Iterator, Mapping
from time import monotonic
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, ReadMinRows, SupportsTriggerAvailableNow
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from ottla.client.options import InvalidOption
from ottla.pipelines.source_offsets import Offsets, Range, available, limited, split, together
from ottla.pipelines.source_options import EARLIEST, LATEST, SourceOptions, check_batch, check_stream, source_options
from ottla.types import ZERO_UUID, TopicPartition

# Spark starts several Python processes for each query, and most of them only make this class and look at its options: the client
# and the decoder are imported where they are used.
if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.blocking import Client
    from ottla.pipelines.source_plan import Plan

logger = logging.getLogger("ottla.source")

_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
_COLUMNS: dict[str, tuple[DataType, ...]] = {
    "key": (BinaryType(), StringType()),
    "value": (BinaryType(), StringType()),
    "topic": (StringType(),),
    "partition": (IntegerType(),),
    "offset": (LongType(),),
    "timestamp": (TimestampType(),),
    "timestampType": (IntegerType(),),
    "headers": (_HEADERS,),
}
_COMMIT_TIMEOUT_S = 5.0
_TASK_RECORDS_MIN = 20_000
"""Fewer are not worth a task of their own: one task reads several ranges, one after the other."""


class TopicRanges(InputPartition):
    """What one task reads."""

    def __init__(self, ranges: Iterable[Range], topic_ids: Mapping[str, str]) -> None:
        # Plain tuples: a task should not have to import more than it needs.
        self.ranges = [(*entry.where, entry.start, entry.end, topic_ids.get(entry.where.topic)) for entry in ranges]

    def __repr__(self) -> str:
        return ", ".join(f"{topic}-{partition}: {start} to {end}" for topic, partition, start, end, _ in self.ranges)


class OttlaSource(DataSource):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))
        self.parsed = source_options(options)

    @classmethod
    def name(cls) -> str:
        return "ottla"

    def schema(self) -> StructType:
        names = [name for name in _COLUMNS if name != "headers" or self.parsed.include_headers]
        return StructType([StructField(name, _COLUMNS[name][0]) for name in names])

    def reader(self, schema: StructType) -> OttlaReader:
        return OttlaReader(check_batch(self.parsed), _checked(schema, self.parsed))

    def streamReader(self, schema: StructType) -> OttlaStreamReader:
        return OttlaStreamReader(check_stream(self.parsed), _checked(schema, self.parsed))


class OttlaReader(DataSourceReader):
    """A batch query: what is between two positions now."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema

    def partitions(self) -> list[InputPartition]:
        from ottla.client.blocking import Client
        from ottla.pipelines.source_plan import Plan

        with Client(self.options.client) as client:
            plan = Plan(self.options, client)
            found = plan.partitions()
            first = plan.first(found.positions, EARLIEST)
            last = plan.last(found.positions)
            wanted = []
            for where in sorted(found.positions):
                if first[where] > last[where] and self.options.ending is not None:
                    continue  # by time: nothing lies between the two
                if first[where] > last[where]:
                    plan.lost(f"{where} ends at offset {last[where]}, before offset {first[where]}, where reading was to begin")
                wanted.append(Range(where, first[where], last[where]))
            return _tasks(plan.present(wanted), found.topic_ids, self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, self.schema, partition)


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query, as the driver sees it; `read` is what its tasks do."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self._client: Client | None = None
        self._target: Offsets | None = None
        """Where a query with Trigger.AvailableNow ends."""
        self._latest: Offsets | None = None
        self._last_batch = monotonic()
        self._committed: Offsets | None = None
        self._commit_failed = False

    def __getstate__(self) -> dict[str, Any]:
        """For `read` in an executor: without what belongs to the driver."""
        return {**self.__dict__, "_client": None, "_target": None, "_latest": None}

    def initialOffset(self) -> dict[str, Any]:
        plan = self._plan()
        found = plan.partitions()
        return Offsets(plan.first(found.positions, LATEST), found.topic_ids).document()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self.options.offsets_per_trigger_max)
        if self.options.offsets_per_trigger_min is not None:
            return ReadMinRows(self.options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._present()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        began = Offsets.of(start)
        # Spark asks for the next batch when the one before is done, but calls `commit` for it only if there is a next one.
        self._commit(began)
        now = self._latest = self._present()
        if self._target is not None:
            now = _not_beyond(now, self._target)
        behind = self._plan().behind(began, now)
        ends = now.positions
        if self._waits(sum(available(behind.positions, ends).values()), limit):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = limited(behind.positions, ends, limit.max_rows)
        found = Offsets(ends, now.topic_ids).document()
        if found != start:
            self._last_batch = monotonic()
        return found

    def _waits(self, count: int, limit: ReadLimit) -> bool:
        """Whether the next batch should wait for more: minOffsetsPerTrigger, at most for maxTriggerDelay."""
        wanted = self.options.offsets_per_trigger_min
        if wanted is None or count >= wanted or isinstance(limit, ReadAllAvailable) or self._target is not None:
            return False
        return (monotonic() - self._last_batch) * 1000 < self.options.trigger_delay_max_ms

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the progress of the query: the lag is what this is ahead of its end offset."""
        return self._latest.document() if self._latest is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        to = Offsets.of(end)
        return _tasks(self._plan().ranges(Offsets.of(start), to), to.topic_ids, self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, self.schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit(Offsets.of(end))

    def _commit(self, done: Offsets) -> None:
        """Show the group's lag to whoever looks. The query does not depend on it: its own offsets are in its checkpoint."""
        if self.options.group_id is None or done == self._committed:
            return
        from ottla.client.blocking import BrokerAway
        from ottla.client.offsets import commit_offsets
        from ottla.client.transactions import CommittedOffset
        from ottla.errors import KafkaError

        offsets = {where: CommittedOffset(offset) for where, offset in done.positions.items()}
        try:
            commit_offsets(self._plan().client, self.options.group_id, offsets, timeout_s=_COMMIT_TIMEOUT_S)
            self._committed = done
            self._commit_failed = False
        except (KafkaError, BrokerAway) as error:
            if not self._commit_failed:
                logger.warning("offsets could not be committed to group %s: %s", self.options.group_id, error)
            self._commit_failed = True

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _plan(self) -> Plan:
        from ottla.client.blocking import Client
        from ottla.pipelines.source_plan import Plan

        if self._client is None:
            self._client = Client(self.options.client)
        return Plan(self.options, self._client)

    def _present(self) -> Offsets:
        """The ends of all partitions there are now."""
        plan = self._plan()
        found = plan.partitions(missing_ok=True)
        return Offsets(plan.latest(found.positions), found.topic_ids)


def _not_beyond(now: Offsets, target: Offsets) -> Offsets:
    """Partitions that came after the target was set wait for the next run; of topics made again, the new one is what is there."""
    return Offsets(
        {
            where: min(offset, target.positions[where])
            if now.topic_ids.get(where.topic) == target.topic_ids.get(where.topic)
            else offset
            for where, offset in now.positions.items()
            if where in target.positions
        },
        now.topic_ids,
    )


def schema_of(names: Iterable[str]) -> StructType:
    """These columns of a topic, for `.schema(…)`: what is not asked for is neither made here nor carried through the JVM."""
    wanted = set(names)
    return StructType([StructField(name, kinds[0]) for name, kinds in _COLUMNS.items() if name in wanted])


def _checked(schema: StructType, options: SourceOptions) -> StructType:
    for entry in schema.fields:
        if entry.name not in _COLUMNS or entry.dataType not in _COLUMNS[entry.name]:
            kinds = ", ".join(f"{name} {kinds[0].simpleString()}" for name, kinds in _COLUMNS.items())
            raise InvalidOption("schema", f"{entry.name} {entry.dataType.simpleString()}", f"the columns of a topic are {kinds}")
        if entry.name == "headers" and not options.include_headers:
            raise InvalidOption("includeHeaders", "false", "it must be true for a column headers")
    # Nullable everywhere, as Spark's own source has them: a column of the user's that is not would not fit the data's schema.
    return schema


def _tasks(ranges: list[Range], topic_ids: Mapping[str, str], options: SourceOptions) -> list[InputPartition]:
    records_max = options.records_per_partition_max
    pieces = split(ranges, options.partitions_min, records_max)
    if options.partitions_min is not None:
        return [TopicRanges([entry], topic_ids) for entry in pieces]
    least = _TASK_RECORDS_MIN if records_max is None else min(_TASK_RECORDS_MIN, records_max)
    return [TopicRanges(group, topic_ids) for group in together(pieces, least)]


def _read(options: SourceOptions, schema: StructType, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    from pyspark.sql.pandas.types import to_arrow_schema

    from ottla.pipelines.source_read import read_ranges
    from ottla.pipelines.workers import settle

    settle()
    if not isinstance(partition, TopicRanges):
        return iter(())  # Spark's way to say that there is nothing to read
    entries = [
        (Range(TopicPartition(topic, number), start, end), base64.urlsafe_b64decode(topic_id + "==") if topic_id else ZERO_UUID)
        for topic, number, start, end, topic_id in partition.ranges
    ]
    return read_ranges(options, entries, to_arrow_schema(schema, timezone="UTC"))
