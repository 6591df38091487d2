"""The classes that Spark calls: the data source, its batch reader and its stream reader, and what one task reads."""

from __future__ import annotations

import base64
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from time import monotonic
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from ottla.client.options import InvalidOption
from ottla.pipelines.data_source import columns, read_limits
from ottla.pipelines.data_source.offsets import OffsetRange, SourceOffsets, available, group_ranges, limited, split_ranges
from ottla.pipelines.data_source.options import EARLIEST, LATEST, SourceOptions, check_batch, check_stream, source_options
from ottla.pipelines.data_source.read_limits import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)
from ottla.pipelines.data_source.registry import NO_DECODINGS, Decoding, decodings
from ottla.types import ZERO_UUID, TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla.client.blocking import Client
    from ottla.pipelines.data_source.planning import ReadPlanner

logger = logging.getLogger("ottla.source")

_COMMIT_TIMEOUT_S = 5.0
_SMALL_BATCH_RECORDS = 1_000
_SMALL_BATCH_BYTES = 1 << 20
"""A batch of a stream with at most so much is read where it is planned, without a task in Python."""
_SMALL_BATCH_TIMEOUT_MS = 5_000
"""After that a task reads it, which waits for a broker as long as the options say."""
_TASK_RECORDS_MIN = 20_000
"""A task reads several ranges in turn until it has this many records."""


class OttlaSource(DataSource):
    def __init__(self, options: Mapping[str, str]) -> None:
        super().__init__(dict(options))

    @cached_property
    def parsed(self) -> SourceOptions:
        return source_options(self.options)

    @classmethod
    def name(cls) -> str:
        return "ottla"

    @cached_property
    def decodings(self) -> dict[str, Decoding]:
        """Kept with the source: the schema that Spark was told is the one to read with."""
        return decodings(self.parsed.registry)

    def schema(self) -> StructType | str:
        headers = self.parsed.include_headers
        if not self.decodings:
            return columns.default_schema(include_headers=headers)
        return columns.decoded_schema({name: each.ddl for name, each in self.decodings.items()}, include_headers=headers)

    def reader(self, schema: StructType) -> OttlaReader:
        return OttlaReader(check_batch(self.parsed), columns.checked(schema, self.parsed, self.decodings), self.decodings)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        from ottla.pipelines.data_source.sink_options import sink_options
        from ottla.pipelines.data_source.writers import OttlaWriter

        if overwrite:
            raise InvalidOption("mode", "overwrite", 'records are only added to a topic: .mode("append")')
        return OttlaWriter(sink_options(self.options), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        from ottla.pipelines.data_source.sink_options import sink_options
        from ottla.pipelines.data_source.writers import OttlaStreamWriter

        return OttlaStreamWriter(sink_options(self.options), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        checked = columns.checked(schema, self.parsed, self.decodings)
        reader = OttlaStreamReader(check_stream(self.parsed), checked, self.decodings)
        return reader if read_limits.ARE_KNOWN else WithoutLimits(reader)


class OttlaReader(DataSourceReader):
    """A batch query: the records between two positions, as of now."""

    def __init__(self, options: SourceOptions, schema: StructType, decodings: Mapping[str, Decoding] = NO_DECODINGS) -> None:
        self.options = options
        self.schema = schema
        self.decodings = decodings

    def partitions(self) -> list[InputPartition]:
        from ottla.client.blocking import Client
        from ottla.pipelines.data_source.planning import ReadPlanner

        with Client(self.options.client) as client:
            # A query that starts has nothing to wait for, unlike a stream that meets an outage.
            client.reach()
            planner = ReadPlanner(self.options, client)
            found = planner.partitions()
            first = planner.first(found.positions, EARLIEST)
            last = planner.last(found.positions)
            wanted = []
            for where in sorted(found.positions):
                if first[where] > last[where] and self.options.ending is not None:
                    continue  # two timestamps may have no records between them
                if first[where] > last[where]:
                    planner.lost(f"{where} ends at offset {last[where]}, before offset {first[where]}, where the query starts")
                wanted.append(OffsetRange(where, first[where], last[where]))
            return _divided(planner.present(wanted), found.topic_ids, self.options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, self.schema, self.decodings, partition)


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A streaming query. Lives on the driver, except `read`, which runs in tasks."""

    def __init__(self, options: SourceOptions, schema: StructType, decodings: Mapping[str, Decoding] = NO_DECODINGS) -> None:
        self.options = options
        self.schema = schema
        self.decodings = decodings
        self._client: Client | None = None
        self._fetching: Client | None = None
        """For the rows of small batches: one that is given up may have a fetch under way."""
        self._target: SourceOffsets | None = None
        """The end offsets of a query with Trigger.AvailableNow."""
        self._rows: Sequence[pa.RecordBatch] = ()
        """Those of the batch that was planned last, while `_ReaderWithRows` has them."""
        self._latest: SourceOffsets | None = None
        self._last_batch = monotonic()
        self._committed: SourceOffsets | None = None
        self._commit_failed = False

    def __getstate__(self) -> dict[str, Any]:
        """Only what `read` needs in an executor."""
        return {**self.__dict__, "_client": None, "_fetching": None, "_target": None, "_latest": None, "_rows": ()}

    def initialOffset(self) -> dict[str, Any]:
        planner = self._planner()
        planner.client.reach()
        found = planner.partitions()
        return SourceOffsets(planner.first(found.positions, LATEST), found.topic_ids).document()

    def getDefaultReadLimit(self) -> ReadLimit:
        if self.options.offsets_per_trigger_max is not None:
            return ReadMaxRows(self.options.offsets_per_trigger_max)
        if self.options.offsets_per_trigger_min is not None:
            return ReadMinRows(self.options.offsets_per_trigger_min)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._end_offsets()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        began = SourceOffsets.of(start)
        # The batch before is done when Spark asks for the next one, but Spark calls `commit` only if there is a next batch.
        self._commit(began)
        now = self._latest = self._end_offsets()
        if self._target is not None:
            now = _limited_to(now, self._target)
        if self.options.until is not None:
            now = _not_beyond(self.options.until, began, now)
        begin_at = self._planner().surviving(began, now)
        ends = now.positions
        if self._should_wait(sum(available(begin_at.positions, ends).values()), limit):
            return start
        if isinstance(limit, ReadMaxRows):
            ends = limited(begin_at.positions, ends, limit.max_rows)
        found = SourceOffsets(ends, now.topic_ids).document()
        if found != start:
            self._last_batch = monotonic()
        return found

    def _should_wait(self, count: int, limit: ReadLimit) -> bool:
        """Whether the next batch waits for more records: below minOffsetsPerTrigger, for at most maxTriggerDelay."""
        wanted = self.options.offsets_per_trigger_min
        if wanted is None or count >= wanted or isinstance(limit, ReadAllAvailable) or self._target is not None:
            return False
        return (monotonic() - self._last_batch) * 1000 < self.options.trigger_delay_max_ms

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For Spark's progress report, which shows the lag between this and the end offset of the batch."""
        return self._latest.document() if self._latest is not None else None

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        to = SourceOffsets.of(end)
        planner = self._planner()
        found = _divided(planner.ranges(SourceOffsets.of(start), to), to.topic_ids, self.options)
        rows = self._small_batch(found)
        self._rows = rows or ()
        self.__class__ = OttlaStreamReader if rows is None else _ReaderWithRows
        return found

    def _small_batch(self, plan: list[InputPartition]) -> list[pa.RecordBatch] | None:
        """The rows of a plan with a single small task. None if a task is to read them, as it does if a registry decodes, and to
        report what is wrong with them."""
        only = plan[0] if len(plan) == 1 and not self.decodings else None
        if not read_limits.TAKES_ROWS or not isinstance(only, TopicRanges) or only.records > _SMALL_BATCH_RECORDS:
            return None
        from ottla.client.blocking import Client
        from ottla.errors import KafkaError, MalformedInput
        from ottla.pipelines.arrow_types import arrow_schema
        from ottla.pipelines.data_source.fetching import read_with
        from ottla.pipelines.data_source.planning import DataLost

        given, timeout_ms = self.options.client, _SMALL_BATCH_TIMEOUT_MS
        options = replace(
            given,
            api_timeout_ms=min(given.api_timeout_ms, timeout_ms),
            request_timeout_ms=min(given.request_timeout_ms, timeout_ms),
        )
        client, self._fetching = self._fetching or Client(options), None
        rows: list[pa.RecordBatch] = []
        size = 0
        try:
            for batch in read_with(client, self.options, only.entries(), arrow_schema(self.schema)):
                rows.append(batch)
                size += batch.nbytes
                if size > _SMALL_BATCH_BYTES:
                    return None
            self._fetching = client
        except (KafkaError, OSError, MalformedInput, DataLost) as error:
            logger.debug("A task will read %r: %s", only, error)
            return None
        finally:
            if self._fetching is None:
                client.close()
        return rows

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return _read(self.options, self.schema, self.decodings, partition)

    def commit(self, end: dict[str, Any]) -> None:
        self._commit(SourceOffsets.of(end))

    def _commit(self, done: SourceOffsets) -> None:
        """Commit to the group, for lag tools. A failure is a warning: the query reads its offsets from its checkpoint."""
        if self.options.group_id is None or done == self._committed:
            return
        from ottla.client.blocking import BrokerAway
        from ottla.client.offsets import commit_offsets
        from ottla.client.transactions import CommittedOffset
        from ottla.errors import KafkaError

        offsets = {where: CommittedOffset(offset) for where, offset in done.positions.items()}
        try:
            commit_offsets(self._planner().client, self.options.group_id, offsets, timeout_s=_COMMIT_TIMEOUT_S)
            self._committed = done
            self._commit_failed = False
        except (KafkaError, BrokerAway) as error:
            if not self._commit_failed:
                logger.warning("Offsets could not be committed to group %s (the query goes on): %s", self.options.group_id, error)
            self._commit_failed = True

    def stop(self) -> None:
        for client in (self._client, self._fetching):
            if client is not None:
                client.close()
        self._client = self._fetching = None

    def _planner(self) -> ReadPlanner:
        from ottla.client.blocking import Client
        from ottla.pipelines.data_source.planning import ReadPlanner

        if self._client is None:
            self._client = Client(self.options.client)
        return ReadPlanner(self.options, self._client)

    def end_offsets(self) -> dict[str, Any]:
        """All there is, for a Spark without limits."""
        now, starting = self._end_offsets(), self.options.starting
        if self.options.until is not None:
            # Such a Spark does not say where a batch begins. Partitions without a start were added later, and begin at 0.
            began = SourceOffsets(starting.offsets) if starting is not None and starting.offsets is not None else SourceOffsets()
            now = _not_beyond(self.options.until, began, now)
        return now.document()

    def check(self, start: dict[str, Any], end: dict[str, Any]) -> None:
        """Report records that are lost between two offsets."""
        self._planner().surviving(SourceOffsets.of(start), SourceOffsets.of(end))

    def _end_offsets(self) -> SourceOffsets:
        """The present end offsets of all partitions."""
        planner = self._planner()
        found = planner.partitions(missing_ok=True)
        return SourceOffsets(planner.latest(found.positions), found.topic_ids)


class _ReaderWithRows(OttlaStreamReader, read_limits.SimpleReader):
    """The same reader while it has the rows of a small batch, from the plan of the batch until Spark takes them.

    Spark asks for rows beside a plan only readers of this kind, which on the other hand cannot report a latest offset. If it does
    not ask, or loses the rows, tasks read them.
    """

    def getCache(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        rows, self._rows = self._rows, ()
        self.__class__ = OttlaStreamReader  # type: ignore[assignment]
        return iter(rows)


class WithoutLimits(DataSourceStreamReader):
    """A streaming query on Spark 4.1, which asks for the latest offset alone: a batch takes all that is there."""

    def __init__(self, reader: OttlaStreamReader) -> None:
        for name, value in (
            ("maxOffsetsPerTrigger", reader.options.offsets_per_trigger_max),
            ("minOffsetsPerTrigger", reader.options.offsets_per_trigger_min),
        ):
            if value is not None:
                raise InvalidOption(name, str(value), "it needs Spark 4.2 or newer")
        self.reader = reader
        self._planned: dict[str, Any] | None = None
        """Where the last batch ends that Spark planned."""

    def initialOffset(self) -> dict[str, Any]:
        return self.reader.initialOffset()

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]  # as in Spark 4.1
        if self._planned is not None:
            # That batch is done: Spark plans one at a time, and a query that failed is another process.
            self.reader.commit(self._planned)
        return self.reader.end_offsets()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        self.reader.check(start, end)
        self._planned = end
        return self.reader.partitions(start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self.reader.read(partition)

    def commit(self, end: dict[str, Any]) -> None:
        self.reader.commit(end)

    def stop(self) -> None:
        self.reader.stop()


def _limited_to(now: SourceOffsets, target: SourceOffsets) -> SourceOffsets:
    """`now`, but not beyond `target`. Partitions added since then wait for the next run; a recreated topic keeps its own ends."""
    return SourceOffsets(
        {
            where: min(offset, target.positions[where])
            if now.topic_ids.get(where.topic) == target.topic_ids.get(where.topic)
            else offset
            for where, offset in now.positions.items()
            if where in target.positions
        },
        now.topic_ids,
    )


def _not_beyond(until: Mapping[TopicPartition, int], began: SourceOffsets, now: SourceOffsets) -> SourceOffsets:
    """`now`, but not beyond `until`. Partitions that it does not name stay where the query began."""
    positions = {
        where: max(min(offset, until.get(where, 0)), min(offset, began.positions.get(where, 0)))
        for where, offset in now.positions.items()
    }
    return SourceOffsets(positions, now.topic_ids)


class TopicRanges(InputPartition):
    """The offset ranges of one task."""

    def __init__(self, ranges: Iterable[OffsetRange], topic_ids: Mapping[str, str]) -> None:
        # Plain tuples, so that unpickling in a worker imports nothing more.
        self.ranges = [(*entry.where, entry.start, entry.end, topic_ids.get(entry.where.topic)) for entry in ranges]

    @property
    def records(self) -> int:
        return sum(end - start for _, _, start, end, _ in self.ranges)

    def entries(self) -> list[tuple[OffsetRange, bytes]]:
        """The ranges, each with the id of its topic."""
        return [
            (
                OffsetRange(TopicPartition(topic, number), start, end),
                base64.urlsafe_b64decode(topic_id + "==") if topic_id else ZERO_UUID,
            )
            for topic, number, start, end, topic_id in self.ranges
        ]

    def __repr__(self) -> str:
        return ", ".join(f"{topic}-{partition}: {start} to {end}" for topic, partition, start, end, _ in self.ranges)


def _divided(ranges: list[OffsetRange], topic_ids: Mapping[str, str], options: SourceOptions) -> list[InputPartition]:
    """The ranges as input partitions, by minPartitions and maxRecordsPerPartition."""
    records_max = options.records_per_partition_max
    pieces = split_ranges(ranges, options.partitions_min, records_max)
    if options.partitions_min is not None:
        return [TopicRanges([entry], topic_ids) for entry in pieces]
    target = _TASK_RECORDS_MIN if records_max is None else min(_TASK_RECORDS_MIN, records_max)
    return [TopicRanges(group, topic_ids) for group in group_ranges(pieces, target)]


def _read(
    options: SourceOptions, schema: StructType, decodings: Mapping[str, Decoding], partition: InputPartition
) -> Iterator[pa.RecordBatch]:
    """The rows of an input partition. Runs in a Python worker."""
    from ottla.pipelines.arrow_types import arrow_schema
    from ottla.pipelines.data_source.fetching import read_ranges
    from ottla.pipelines.workers import exclude_imports_from_gc

    exclude_imports_from_gc()
    if not isinstance(partition, TopicRanges):
        return iter(())  # Spark passes a plain InputPartition if there is nothing to read
    return read_ranges(options, partition.entries(), arrow_schema(schema), decodings)
