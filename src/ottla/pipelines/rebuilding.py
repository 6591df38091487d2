"""Rebuilds the state of a flow in a new checkpoint: the topics are read again, the output is thrown away.

Most is read while the old version runs (`catch_up`). When it is held, one last batch goes up to its offsets exactly (`finish`).

Which results the old version has emitted is decided by the watermark of its last batch. The last batch here gets the same: its
entry in Spark's offset log is written before Spark starts it. So windows that the old version has closed are dropped with the
output, and all others stay in the state, complete.

Until then no batch may have a later watermark than that:
- With the same watermarks, `catch_up` stops where the old version's last batch began. What is read up to there is what gave that
  batch its watermark.
- With others, `catch_up` is a single batch: the watermark of a query's first batch is 0.
Nor may Spark add a batch without data, which would close windows: it is told not to.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ottla.client.offsets import EARLIEST, list_offsets
from ottla.pipelines import topics
from ottla.pipelines.checkpoint import Checkpoint, PartitionOffsets, inputs_of, offsets_of
from ottla.pipelines.data_source.offsets import nested
from ottla.pipelines.definitions import Flow, Source
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.frames import Frames, checked
from ottla.pipelines.graph import Plan
from ottla.pipelines.marker import Marker
from ottla.pipelines.project import Project
from ottla.pipelines.queries import run_to_end
from ottla.pipelines.topics import Clients

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_NO_DATA = "spark.sql.streaming.noDataMicroBatches.enabled"
_EVERYTHING = str(2**40)


@dataclass
class Rebuild:
    """A new checkpoint of a flow. `project` is that of the new version."""

    spark: SparkSession
    clients: Clients
    project: Project
    plan: Plan
    flow: Flow
    before: Checkpoint | None
    """The checkpoint of the old version; None if that had no state."""
    same_watermarks: bool

    def __post_init__(self) -> None:
        self.checkpoint = Checkpoint(self.spark, self.project.checkpoint(self.flow.name))
        self._sources = Frames(self.spark, self.project, self.plan).sources(self.flow)
        self._places = {source.name: topics.places_of(self.clients.of(source.cluster), source) for source in self._sources}
        self._start: PartitionOffsets = {}

    def begin(self, origin: Mapping[str, Any]) -> None:
        """Note where the checkpoint begins: where the flow began when it ran first, by the names of its sources."""
        starting = {}
        for source in self._sources:
            given = str(origin.get(source.name, {}).get("option", source.starting))
            client = self.clients.of(source.cluster)
            starting[source.name] = topics.resolve(client, source, given)
            firsts = list_offsets(client, dict.fromkeys(self._places[source.name], EARLIEST))
            wanted = offsets_of(json.dumps(starting[source.name]["offsets"]))
            self._start |= {where: max(at.offset, wanted.get(where, 0)) for where, at in firsts.items()}
        self.checkpoint.write_note(
            {
                "pipeline": self.project.name,
                "flow": self.flow.name,
                "inputs": inputs_of(self.plan, self.flow, self._sources),
                "starting": starting,
                "origin": dict(origin) or starting,
            }
        )

    def catch_up(self, marker: Marker | None) -> None:
        """Read what the old version had read before its last batch."""
        if marker is None or self.before is None or marker.query_id != self.before.query_id():
            return
        began = self.before.batch_offsets(marker.batch_id, {}).start
        if any(began.get(where, 0) > self._start[where] for where in self._start):
            self._run(began, single=not self.same_watermarks)

    def finish(self, marker: Marker, until: PartitionOffsets) -> tuple[Marker, PartitionOffsets]:
        """Read up to the offsets of the held version. The marker of the last batch, and the offsets that it ends at."""
        begun = self.before is not None and marker.query_id == self.before.query_id()
        last = self.checkpoint.last_batch()
        if not begun:
            # The old version had no state: what is over before the switch is over.
            self._run(until, single=True, no_data=True)
        elif last is None:
            self._run(until, single=True)
            if self.before is not None and self.before.watermark_ms(marker.batch_id) > 0:
                self._forge(marker, until)
        else:
            self._forge(marker, until)
        last = self.checkpoint.last_batch()
        if last is None:
            return Marker("-", 0, "0", self.project.version, self.project.version), until
        found = self.checkpoint.batch_offsets(last, self._start)
        wrong = [
            where for where, offset in until.items() if found.end.get(where, 0) != offset and offset > self._start.get(where, 0)
        ]
        if wrong:
            raise PipelineError(
                f"flow {self.flow.name!r}: the new state ends at offset {found.end.get(wrong[0])} of {wrong[0]}, the old version "
                f"at {until[wrong[0]]}",
                self.flow.place,
                hint="nothing was switched: run the upgrade again",
            )
        query_id = self.checkpoint.query_id()
        assert query_id is not None
        return Marker(query_id, last, found.fingerprint, self.project.version, self.project.version), until

    def _forge(self, marker: Marker, until: PartitionOffsets) -> None:
        """Run one batch up to these offsets, with the watermark of the old version's last batch."""
        assert self.before is not None
        last = self.checkpoint.last_batch()
        if last is None:
            return  # there was nothing to read
        self.checkpoint.forge_batch(last + 1, until, self.before.watermark_ms(marker.batch_id))
        self._run(until)

    def _run(self, until: PartitionOffsets, *, single: bool = False, no_data: bool = False) -> None:
        frames = Frames(self.spark, self.project, self.plan)
        for source in self._sources:
            mine = self._places[source.name]
            frames.starting[source.name] = json.dumps(nested({where: self._start[where] for where in mine}))
            frames.bounds[source.name] = {
                "untilOffsets": json.dumps(nested({where: until.get(where, 0) for where in mine})),
                "failOnDataLoss": "false",
                **({"maxOffsetsPerTrigger": _EVERYTHING} if single else _pace(source)),
            }

        def discard(frame: DataFrame, batch_id: int) -> None:
            frame.write.format("noop").mode("overwrite").save()

        result = checked(frames, self.flow)
        writer = result.writeStream.outputMode(self.flow.output_mode).option("checkpointLocation", self.checkpoint.location)
        with self._no_data_batches(no_data):
            run_to_end(writer.foreachBatch(discard).trigger(availableNow=True), self.flow)

    @contextmanager
    def _no_data_batches(self, wanted: bool) -> Iterator[None]:
        before = self.spark.conf.get(_NO_DATA, "true")
        self.spark.conf.set(_NO_DATA, str(wanted).lower())
        try:
            yield
        finally:
            self.spark.conf.set(_NO_DATA, str(before))


def _pace(source: Source) -> dict[str, str]:
    return {name: value for name, value in source.options if name.lower() == "maxoffsetspertrigger"}
