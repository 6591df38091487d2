"""Records that a flow does not take: those that do not parse, and those whose rows do not meet an expectation.

A stream drops the former and counts them in an observed metric (`reading`), and counts the latter (`expectations`). If there are
any, the batch's records are read again and the refused ones go to the dead-letter topic in the batch's transaction: key, value
and headers unchanged, plus HEADERS. Without a dead-letter topic the first record that does not parse stops the flow.

A row that does not meet an expectation is traced to its record if the flow makes each row of one record: the flow runs once more
over the batch's records, as a batch query. Of other flows (aggregations, deduplication, Python functions over partitions) the row
itself becomes the dead letter, as JSON.

Several queries may read one source: the first of the pipeline sends its records that do not parse.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property, reduce
from operator import or_
from typing import TYPE_CHECKING, Protocol

from ottla.pipelines import expectations, reading
from ottla.pipelines.checkpoint import BatchOffsets
from ottla.pipelines.data_source.offsets import nested
from ottla.pipelines.definitions import DEAD_LETTER, STOP, Flow, Source, Table
from ottla.pipelines.exactly_once import Refused
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.frames import Frames
from ottla.pipelines.graph import reads
from ottla.pipelines.spark_jvm import EventTime, event_time_of, late_watermark_ms, metrics_add_up, observed_metrics

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

HEADERS = ("ottla.topic", "ottla.partition", "ottla.offset", "ottla.flow", "ottla.reason")
CLUSTER = "ottla.cluster"
"""The header with the name of the record's cluster, if that is not the pipeline's own."""
LATE = "late"
"""The reason of records that the watermark dropped."""
EXPECTATION = "ottla.expectation"
"""The header with the condition that a row did not meet; its name is the reason."""
_PLACE = ("topic", "partition", "offset")
_OFFSET_OPTIONS = frozenset(
    [
        "startingoffsets",
        "startingtimestamp",
        "startingoffsetsbytimestamp",
        "endingoffsets",
        "maxoffsetspertrigger",
        "minoffsetspertrigger",
        "maxtriggerdelay",
        "subscribe",
        "subscribepattern",
        "assign",
        "groupid",
    ]
)

Records = Callable[[Source, BatchOffsets], "DataFrame"]
"""The raw records of a source in a batch, with the columns of `reading.RAW`."""


class Sender(Protocol):
    def send(self, records: DataFrame, topic: str, codec: str) -> tuple[int, int]:
        """Write rows (key, value, headers) to a topic. Returns the number of records and of bytes."""


def batch_records(spark: SparkSession, kafka: Callable[[Source], Mapping[str, str]]) -> Records:
    """Records from the topics. `kafka` gives the client properties of a source."""

    def read(source: Source, offsets: BatchOffsets) -> DataFrame:
        mine = [where for where in offsets.end if reads(source, where.topic) and offsets.start[where] < offsets.end[where]]
        starting = nested({where: offsets.start[where] for where in mine})
        options = {name: value for name, value in source.options if name.lower() not in _OFFSET_OPTIONS}
        return (
            spark.read.format("ottla")
            .options(**{**kafka(source), **options})
            .option("assign", json.dumps({topic: sorted(map(int, parts)) for topic, parts in starting.items()}))
            .option("startingOffsets", json.dumps(starting))
            .option("endingOffsets", json.dumps(nested({where: offsets.end[where] for where in mine})))
            .option("includeHeaders", "true")
            # Retention may have removed records since the batch read them; its good rows are written already.
            .option("failOnDataLoss", "false")
            .load()
        )

    return read


@dataclass
class Refusals:
    """What the query of one flow refuses, batch by batch: `rows`, then `send`."""

    frames: Frames
    flow: Flow
    sources: tuple[Source, ...]
    query_id: Callable[[], str]
    records: Records
    owned: frozenset[str]
    """Names of the sources whose records that do not parse this query sends."""
    _before: dict[str, list[int]] = field(default_factory=dict)
    """Counts of earlier attempts at the batch."""
    _held: DataFrame | None = None
    """The rows of the batch, if they must be looked at twice."""

    @cached_property
    def guarded(self) -> list[Flow]:
        """The flow and the views in it, as far as they have expectations."""
        return [flow for flow in self.frames.plan.computed_in(self.flow) if flow.expectations]

    @cached_property
    def _is_traceable(self) -> bool:
        return self.frames.is_traceable(self.flow)

    @cached_property
    def _holds(self) -> bool:
        """Whether the rows are kept during the batch: to send some as dead letters, or to stop before a table has them."""
        stops_table = isinstance(self.flow.to, Table) and any(expectations.with_action(flow, STOP) for flow in self.guarded)
        return stops_table or bool(expectations.with_action(self.flow, DEAD_LETTER) and not self._is_traceable)

    def rows(self, frame: DataFrame) -> DataFrame:
        """The rows of a batch that the target takes."""
        self._release()
        self._before = self._counts() if metrics_add_up(self.frames.spark) else {}
        if self._holds:
            self._held = frame.persist()
            if isinstance(self.flow.to, Table):
                self._held.count()
                self._stop_if_unmet(self._new_counts())
        return expectations.accepted(frame, self.flow)

    def send(self, frame: DataFrame, offsets: BatchOffsets, transaction: Sender) -> Refused:
        """Send the dead letters of a batch. PipelineError if the flow must stop."""
        try:
            counts = self._new_counts()
            letters = sum(
                self._send_unparsed(source, offsets, transaction)
                for source in self.sources
                if sum(counts.get(reading.metric(source), ()))
            )
            self._stop_if_unmet(counts)
            unmet: dict[str, int] = {}
            for flow in self.guarded:
                found = counts.get(expectations.metric(flow), [0] * len(flow.expectations))
                for each, count in zip(flow.expectations, found, strict=True):
                    unmet[expectations.label(self.flow, flow, each)] = count
                if any(count for each, count in zip(flow.expectations, found, strict=True) if each.on_fail == DEAD_LETTER):
                    letters += self._send_unmet(flow, frame, offsets, transaction)
            if self.flow.late is not None:
                self._send_late(self.flow.late, offsets, transaction)
            return Refused(letters, unmet)
        finally:
            self._release()

    def _release(self) -> None:
        held, self._held = self._held, None
        if held is not None:
            held.unpersist()

    def _counts(self) -> dict[str, list[int]]:
        names = [*map(reading.metric, self.sources), *map(expectations.metric, self.guarded)]
        return observed_metrics(self.frames.spark, self.query_id(), names) if names else {}

    def _new_counts(self) -> dict[str, list[int]]:
        """The counts of this attempt at the batch."""
        return {
            name: [now - before for now, before in zip(counts, self._before.get(name, [0] * len(counts)), strict=True)]
            for name, counts in self._counts().items()
        }

    def _send_unparsed(self, source: Source, offsets: BatchOffsets, transaction: Sender) -> int:
        from pyspark.sql import functions as F

        if source.dead_letter is not None and source.name not in self.owned:
            return 0
        bad = reading.parsed(self.records(source, offsets), source).where(F.col(reading.REASON).isNotNull())
        if source.dead_letter is None:
            first = bad.select(*_PLACE, reading.REASON).orderBy(*_PLACE).first()
            if first is None:
                return 0
            raise PipelineError(
                f"flow {self.flow.name!r} stops at topic {first['topic']}, partition {first['partition']}, offset "
                f"{first['offset']}: {first[reading.REASON]}",
                source.place,
                hint=f"give source {source.name!r} a dead_letter topic for such records",
            )
        values = (F.col("topic"), F.col("partition"), F.col("offset"), F.lit(self.flow.name), F.col(reading.REASON))
        added = [*zip(HEADERS, values, strict=True), *_cluster_of([source])]
        letters = bad.select("key", "value", _with_headers(F.col("headers"), added))
        return transaction.send(letters, source.dead_letter, "none")[0]

    def _send_unmet(self, flow: Flow, frame: DataFrame, offsets: BatchOffsets, transaction: Sender) -> int:
        from pyspark.sql import functions as F

        conditions = F.lit(None).cast("string")
        for each in expectations.with_action(flow, DEAD_LETTER):
            conditions = F.when(F.col(expectations.UNMET) == each.name, each.condition).otherwise(conditions)
        why = {"ottla.flow": F.lit(flow.name), "ottla.reason": F.col(expectations.UNMET), EXPECTATION: conditions}
        if flow.name == self.flow.name and not self._is_traceable:
            rows = expectations.refused(frame, flow)
            value = F.to_json(F.struct(*(F.col(f"`{name}`") for name in frame.columns))).cast("binary").alias("value")
            letters = rows.select(F.lit(None).cast("binary").alias("key"), value, _with_headers(None, why.items()))
            topic = self.sources[0].dead_letter
            assert topic is not None
            return transaction.send(letters, topic, "none")[0]
        unmet = self.frames.unmet_with_records(flow, lambda source: self.records(source, offsets))
        assert unmet is not None, f"flow {flow.name} was traceable"
        # One record may have several such rows.
        found = unmet.select(f"{reading.RECORD}.*", expectations.UNMET).dropDuplicates([*_PLACE])
        places = [*zip(HEADERS, map(F.col, _PLACE), strict=False), *_cluster_of(self.sources), *why.items()]
        count = 0
        for topic in sorted({source.dead_letter for source in self.sources if source.dead_letter is not None}):
            mine = reduce(or_, (_is_of(source) for source in self.sources if source.dead_letter == topic))
            letters = found.where(mine).select("key", "value", _with_headers(F.col("headers"), places))
            count += transaction.send(letters, topic, "none")[0]
        return count

    def _send_late(self, topic: str, offsets: BatchOffsets, transaction: Sender) -> None:
        """Send the records whose rows the watermark dropped in this batch."""
        from pyspark.sql import functions as F

        watermark_ms = late_watermark_ms(self.frames.spark, self.query_id())
        if watermark_ms is None:
            return
        rows = self.frames.records_of_state(self.flow, lambda source: self.records(source, offsets))
        assert rows is not None, f"the records of flow {self.flow.name} were traceable"
        assert self._event_time is not None
        time = F.col(f"`{self._event_time.name}`")
        behind = (time.getField("end") if self._event_time.is_window else time) <= F.timestamp_millis(F.lit(watermark_ms))
        # A record may be in several windows.
        found = rows.where(behind).select(f"{reading.RECORD}.*").dropDuplicates([*_PLACE])
        values = (F.col("topic"), F.col("partition"), F.col("offset"), F.lit(self.flow.name), F.lit(LATE))
        added = [*zip(HEADERS, values, strict=True), *_cluster_of(self.sources)]
        transaction.send(found.select("key", "value", _with_headers(F.col("headers"), added)), topic, "none")

    @cached_property
    def _event_time(self) -> EventTime | None:
        return event_time_of(self.frames.result(self.flow))

    def _stop_if_unmet(self, counts: Mapping[str, list[int]]) -> None:
        for flow in self.guarded:
            found = counts.get(expectations.metric(flow), [0] * len(flow.expectations))
            for each, count in zip(flow.expectations, found, strict=True):
                if each.on_fail == STOP and count:
                    rows = "1 row does" if count == 1 else f"{count} rows do"
                    raise PipelineError(
                        f"flow {flow.name!r} stops: {rows} not meet expectation {each.name!r}: {each.condition}",
                        each.place,
                        hint="nothing of the batch was written; correct the data, the flow or the expectation, and run it again",
                    )


def _is_of(source: Source) -> Column:
    from pyspark.sql import functions as F

    return F.col("topic").rlike(f"^(?:{source.pattern})$") if source.pattern is not None else F.col("topic").isin(*source.topics)


def _cluster_of(sources: Iterable[Source]) -> list[tuple[str, Column]]:
    """The header CLUSTER of records of these sources: null for those of the pipeline's own, none if all are its own."""
    from pyspark.sql import functions as F

    name, found = F.lit(None).cast("string"), False
    for source in sources:
        if source.cluster is not None:
            name, found = F.when(_is_of(source), source.cluster.name).otherwise(name), True
    return [(CLUSTER, name)] if found else []


def _with_headers(headers: Column | None, added: Iterable[tuple[str, Column]]) -> Column:
    from pyspark.sql import functions as F

    kind = "array<struct<key:string,value:binary>>"
    more = F.array(
        *(F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value")) for name, value in added)
    )
    before = F.array().cast(kind)
    if headers is not None:
        before = F.coalesce(headers, before)
    return F.concat(before, more).alias("headers")
