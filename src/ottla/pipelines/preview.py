"""What a flow makes of records that are in its topics now. Writes nothing: no topic, no table, no offsets, no checkpoint.

The last records of each source are read once, as a batch, and the flow runs on them as a batch query. A window, a state or a join
sees no more than these records. A flow that reads the topic of another gets what that one makes of them.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

from ottla.client.blocking import Client
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.errors import KafkaError
from ottla.pipelines import expectations, reading, spark_errors
from ottla.pipelines.data_source.offsets import nested
from ottla.pipelines.definitions import Files, Flow, Source
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.frames import Frames, kafka_options
from ottla.pipelines.graph import Plan, reads
from ottla.pipelines.project import Project
from ottla.pipelines.topics import connect
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS_MAX = 1_000
UNMET = "(unmet)"
"""The column with the expectations that a row does not meet, if a shown row has some."""


@dataclass
class Preview:
    flow: str
    columns: list[str]
    rows: list[dict[str, Any]]
    read: dict[str, int]
    """By source, the number of records that were read."""
    unparsed: dict[str, int] = field(default_factory=dict)
    """By reason, records that do not parse. Counted only if there are no rows."""


def preview(
    spark: SparkSession, project: Project, plan: Plan, flow: Flow, *, rows_max: int = 20, records_max: int = RECORDS_MAX
) -> Preview:
    """The first rows that the flow makes of the last records of its sources. PipelineError if it cannot run."""
    looking = _Looking(spark, project, plan, records_max)
    frames = Frames(spark, project, plan, given=looking.frame)
    looking.frames = frames
    result = frames.result(flow)
    columns = list(result.columns)
    try:
        table = expectations.with_unmet(result, flow, UNMET).limit(rows_max).toArrow()
        rows = table.to_pylist(maps_as_pydicts="strict")
        unparsed = looking.unparsed() if not rows else {}
    except PipelineError:
        raise
    except Exception as error:
        raise spark_errors.query_failure(error, flow) from error
    if any(row.get(UNMET) for row in rows):
        columns.append(UNMET)
    return Preview(flow.name, columns, [{name: row[name] for name in columns} for row in rows], looking.read, unparsed)


def plain(value: Any) -> Any:
    """A value of a row as JSON has it: times as in a topic, bytes as text, in base64 if they are none."""
    if isinstance(value, datetime):
        text = value.isoformat(timespec="microseconds" if value.microsecond % 1000 else "milliseconds")
        return text.replace("+00:00", "Z")
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return b64encode(value).decode()
    if isinstance(value, dict):
        return {str(plain(name)): plain(each) for name, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, Decimal):
        return float(value)
    return value if isinstance(value, str | int | float | None) else str(value)


class _Looking:
    """Gives a flow the last records of its sources."""

    def __init__(self, spark: SparkSession, project: Project, plan: Plan, records_max: int) -> None:
        self.spark, self.project, self.plan, self.records_max = spark, project, plan, records_max
        self.frames: Frames | None = None
        self.read: dict[str, int] = {}
        self._raw: dict[str, tuple[Source, DataFrame]] = {}

    def frame(self, node: Source | Files) -> DataFrame:
        if isinstance(node, Files):
            return reading.files(self.spark, replace(node, static=True))
        writer = next((flow for flow in self.plan.queries if flow.name == node.name), None)
        if writer is not None:
            assert self.frames is not None
            return expectations.accepted(self.frames.result(writer), writer)
        return reading.rows(self._records(node), node)

    def _records(self, source: Source) -> DataFrame:
        if source.name not in self._raw:
            starting, ending = self._range(source)
            self.read[source.name] = sum(ending[where] - starting[where] for where in ending)
            frame = (
                self.spark.read.format("ottla")
                .options(**kafka_options(self.project, source.cluster))
                .option("assign", json.dumps(_partitions(ending)))
                .option("startingOffsets", json.dumps(nested(starting)))
                .option("endingOffsets", json.dumps(nested(ending)))
                .option("includeHeaders", "true")
                .option("failOnDataLoss", "false")
                .load()
            )
            self._raw[source.name] = source, frame
        return self._raw[source.name][1]

    def _range(self, source: Source) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
        """The offsets of the last records, about as many of each partition."""
        try:
            with Client(connect(self.project, source.cluster)) as client:
                names = source.topics or tuple(
                    name for name, topic in client.topics().items() if not topic.is_internal and reads(source, name)
                )
                places = [TopicPartition(name, number) for name in names for number in client.topic(name).partitions]
                first, last = (
                    {where: entry.offset for where, entry in list_offsets(client, dict.fromkeys(places, when)).items()}
                    for when in (EARLIEST, LATEST)
                )
        except KafkaError as error:
            raise PipelineError(f"source {source.name!r}: {error}", source.place) from None
        if not places:
            raise PipelineError(f"source {source.name!r}: no topic matches {source.pattern!r}", source.place)
        filled = [where for where in places if last[where] > first[where]] or places
        share = max(self.records_max // len(filled), 1)
        return {where: max(first[where], last[where] - share) for where in places}, last

    def unparsed(self) -> dict[str, int]:
        from pyspark.sql import functions as F

        found: dict[str, int] = {}
        for source, raw in self._raw.values():
            bad = reading.parsed(raw, source).where(F.col(reading.REASON).isNotNull())
            for row in bad.groupBy(reading.REASON).count().collect():
                found[row[0]] = found.get(row[0], 0) + row[1]
        return found


def _partitions(places: Mapping[TopicPartition, int]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for where in sorted(places):
        found.setdefault(where.topic, []).append(where.partition)
    return found
