"""Runs flows over past records and writes what they make into files that nobody reads: the shadow of a version.

Two versions run over the same offsets, in the same batches, from an empty state. Each row is written as the flow's sink would
encode it. A flow whose input is the topic of a flow with a shadow reads that shadow. No topic and no table is written.
"""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.client.offsets import EARLIEST, LATEST, list_offsets
from ottla.pipelines import encoding, expectations, reading
from ottla.pipelines.checkpoint import Checkpoint, PartitionOffsets
from ottla.pipelines.comparison import Row
from ottla.pipelines.data_source.offsets import nested
from ottla.pipelines.definitions import Cluster, Files, Flow, Sink, Source
from ottla.pipelines.frames import Frames, checked
from ottla.pipelines.graph import Plan
from ottla.pipelines.project import Project
from ottla.pipelines.queries import run_to_end
from ottla.pipelines.spark_jvm import FileSystem, observed_metrics
from ottla.pipelines.topics import Clients, places_of
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORDS = 100_000
_BATCHES = 4
_PER_BATCH_MIN = 1_000


@dataclass(frozen=True)
class Stretch:
    """The records that both versions process."""

    parts: Mapping[Cluster | None, tuple[PartitionOffsets, PartitionOffsets]]
    """By cluster, where they begin and end."""

    @property
    def records(self) -> int:
        return sum(sum(end.values()) - sum(start.values()) for start, end in self.parts.values())

    def of(self, cluster: Cluster | None, places: Iterable[TopicPartition]) -> tuple[PartitionOffsets, PartitionOffsets]:
        start, end = self.parts[cluster]
        mine = [where for where in places if where in end]
        return {where: start[where] for where in mine}, {where: end[where] for where in mine}


def stretch(clients: Clients, sources: Iterable[Source], records: int, from_ms: int | None) -> Stretch:
    """The last so many records of each source, or those since a time."""
    parts: dict[Cluster | None, tuple[PartitionOffsets, PartitionOffsets]] = {}
    for source in sources:
        client = clients.of(source.cluster)
        start, end = parts.setdefault(source.cluster, ({}, {}))
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
    return Stretch(parts)


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

    def run(self, clients: Clients, flow: Flow) -> None:
        """Run a flow over the stretch, after those that it reads. PipelineError at the user's line if it fails."""
        frames = Frames(self.spark, self.project, self.plan, given=self._shadow_of)
        sources = [source for source in frames.sources(flow) if is_of(self.plan, source, self.written) is None]
        per_batch = max(self.stretch.records // _BATCHES, _PER_BATCH_MIN)
        for source in sources:
            start, end = self.stretch.of(source.cluster, places_of(clients.of(source.cluster), source))
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
        if flow.name not in flows or not isinstance(flow.to, Sink) or source.columns:
            continue
        if (source.cluster, source.topics) == (flow.to.cluster, (flow.to.topic,)):
            return flow.name
    return None


def as_written(result: DataFrame, flow: Flow) -> list[Any]:
    """The columns key, value and maybe headers, timestamp, partition of a flow's result; a row of a table is a JSON object."""
    from pyspark.sql import functions as F

    if isinstance(flow.to, Sink):
        return encoding.columns(result, flow.to, flow.name)
    value = F.to_json(F.struct(*(F.col(f"`{name}`") for name in result.columns)), {"ignoreNullFields": "false"})
    return [F.lit(None).cast("binary").alias("key"), value.cast("binary").alias("value")]
