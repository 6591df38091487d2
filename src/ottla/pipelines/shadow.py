"""Runs flows over past records and writes what they make into files that nobody reads: the shadow of a version.

Two versions run over the same offsets, in the same batches, from an empty state. Each row is written as the flow's sink would
encode it. A flow whose input is the topic of a flow with a shadow reads that shadow. No topic and no table is written.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.client.blocking import Client
from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.pipelines import encoding, expectations, reading
from ottla.pipelines.checkpoint import Checkpoint, PartitionOffsets
from ottla.pipelines.comparison import Row
from ottla.pipelines.data_source.offsets import nested
from ottla.pipelines.definitions import Files, Flow, Sink, Source
from ottla.pipelines.frames import Frames, checked
from ottla.pipelines.graph import Plan
from ottla.pipelines.project import Project
from ottla.pipelines.queries import run_to_end
from ottla.pipelines.spark_jvm import FileSystem, observed_metrics
from ottla.pipelines.topics import places_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 100_000
_BATCHES = 4
_PER_BATCH_MIN = 1_000


@dataclass(frozen=True)
class Stretch:
    """The records that both versions process."""

    start: PartitionOffsets
    end: PartitionOffsets

    @property
    def records(self) -> int:
        return sum(end - self.start[where] for where, end in self.end.items())

    def of(self, places: Iterable[Any]) -> tuple[PartitionOffsets, PartitionOffsets]:
        mine = [where for where in places if where in self.end]
        return {where: self.start[where] for where in mine}, {where: self.end[where] for where in mine}


def stretch(client: Client, sources: Iterable[Source], records: int, from_ms: int | None) -> Stretch:
    """The last so many records of each source, or those since a time."""
    start: PartitionOffsets = {}
    end: PartitionOffsets = {}
    for source in sources:
        places = [where for where in places_of(client, source) if where not in end]
        ends = {
            where: at.offset for where, at in list_offsets(client, dict.fromkeys(places, LATEST), read_committed=True).items()
        }
        firsts = {where: at.offset for where, at in list_offsets(client, dict.fromkeys(places, EARLIEST)).items()}
        if from_ms is not None:
            found = {where: at.offset for where, at in list_offsets(client, dict.fromkeys(places, from_ms)).items()}
            begin = {where: min(found[where], ends[where]) if found[where] >= 0 else ends[where] for where in places}
        else:
            begin = last(firsts, ends, records)
        start.update(begin)
        end.update({where: max(ends[where], begin[where]) for where in places})
    return Stretch(start, end)


def last(firsts: PartitionOffsets, ends: PartitionOffsets, records: int) -> PartitionOffsets:
    """Where the last so many records begin, in proportion to what each partition has."""
    sizes = {where: max(ends[where] - first, 0) for where, first in firsts.items()}
    total = sum(sizes.values())
    if total <= records:
        return {where: ends[where] - size for where, size in sizes.items()}
    return {where: ends[where] - min(size, -(-size * records // total)) for where, size in sizes.items()}


@dataclass
class Shadow:
    """The shadow of one version, in `folder`."""

    spark: SparkSession
    project: Project
    plan: Plan
    stretch: Stretch
    folder: str
    written: dict[str, str] = field(default_factory=dict)
    """The directories of flows that have run."""
    dead_letters: dict[str, int] = field(default_factory=dict)

    def run(self, client: Client, flow: Flow) -> None:
        """Run a flow over the stretch, after those that it reads. PipelineError at the user's line if it fails."""
        frames = Frames(self.spark, self.project, self.plan, given=self._shadow_of)
        sources = [source for source in frames.sources(flow) if is_of(self.plan, source, self.written) is None]
        per_batch = max(self.stretch.records // _BATCHES, _PER_BATCH_MIN)
        for source in sources:
            start, end = self.stretch.of(places_of(client, source))
            if not start:
                continue
            frames.starting[source.name] = json.dumps(nested(start))
            frames.bounds[source.name] = {
                "untilOffsets": json.dumps(nested(end)),
                "maxOffsetsPerTrigger": str(per_batch),
                "failOnDataLoss": "false",
            }
        result = checked(frames, flow)
        columns = as_written(result, flow)
        folder, checkpoint = f"{self.folder}/{flow.name}", Checkpoint(self.spark, f"{self.folder}/{flow.name}.checkpoint")
        FileSystem(self.spark, folder).make_directory(folder)
        metrics = [reading.metric(source) for source in sources]
        dead: dict[int, int] = {}

        def write(frame: DataFrame, batch_id: int) -> None:
            expectations.accepted(frame, flow).select(*columns).write.mode("overwrite").parquet(f"{folder}/{batch_id}")
            dead[batch_id] = sum(sum(each) for each in observed_metrics(self.spark, str(checkpoint.query_id()), metrics).values())

        writer = result.writeStream.outputMode(flow.output_mode).option("checkpointLocation", checkpoint.location)
        run_to_end(writer.foreachBatch(write).trigger(availableNow=True), flow)
        self.written[flow.name] = folder
        self.dead_letters[flow.name] = sum(dead.values())

    def _shadow_of(self, node: Source | Files) -> DataFrame | None:
        """What a flow of this version has written, in place of its topic."""
        flow = None if isinstance(node, Files) else is_of(self.plan, node, self.written)
        return None if flow is None or isinstance(node, Files) else reading.shadow(self.spark, node, self.written[flow])

    def rows(self, flow: str) -> Iterator[Row]:
        """What a flow has written."""
        if flow not in self.written:
            return
        folder = self.written[flow]
        if not any(name.isdecimal() for name in FileSystem(self.spark, folder).names(folder)):
            return
        found = self.spark.read.option("recursiveFileLookup", "true").parquet(folder)
        rest = [name for name in found.columns if name not in ("key", "value")]
        for batch in found.toArrow().to_batches():
            lists = [batch.column(name).to_pylist() for name in ("key", "value", *rest)]
            for key, value, *more in zip(*lists, strict=True):
                yield Row(key, value, tuple(repr(each) for each in more))


def is_of(plan: Plan, source: Source, flows: Container[str]) -> str | None:
    """Which of these flows writes the topic that the source reads. None as well if the source wants more than values."""
    for flow in plan.queries:
        if flow.name in flows and isinstance(flow.to, Sink) and source.topics == (flow.to.topic,) and not source.columns:
            return flow.name
    return None


def as_written(result: DataFrame, flow: Flow) -> list[Any]:
    """The columns key, value and maybe headers, timestamp, partition of a flow's result; a row of a table is a JSON object."""
    from pyspark.sql import functions as F

    if isinstance(flow.to, Sink):
        return encoding.columns(result, flow.to, flow.name)
    value = F.to_json(F.struct(*(F.col(f"`{name}`") for name in result.columns)), {"ignoreNullFields": "false"})
    return [F.lit(None).cast("binary").alias("key"), value.cast("binary").alias("value")]
