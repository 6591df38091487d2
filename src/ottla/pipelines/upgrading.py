"""Makes another version of a pipeline live, beside the driver of the live one. The rules are in docs/adr/0010.

`examine` says what the edit touches, `shadowed` what it changes in the results, `switch` makes it live. Until the last request of
`switch` the live version is the old one: a driver of it can be started again at any time.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ottla.client.offsets import LATEST, list_offsets
from ottla.client.transactions import CommittedOffset, GroupOffsets
from ottla.pipelines import edits, graph, loading, scratch, tables, topics
from ottla.pipelines.checkpoint import Checkpoint, PartitionOffsets, inputs_of, offsets_of
from ottla.pipelines.comparison import Difference, compare
from ottla.pipelines.data_source.offsets import nested
from ottla.pipelines.definitions import Cluster, Files, Flow, Sink, Source, Table
from ottla.pipelines.edits import FlowEdit, Kind, State
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.frames import Frames
from ottla.pipelines.graph import Plan
from ottla.pipelines.marker import NOT_BEGUN, not_begun, number_of
from ottla.pipelines.project import Project
from ottla.pipelines.rebuilding import Rebuild
from ottla.pipelines.session import is_local
from ottla.pipelines.shadow import Shadow, Stretch, is_of, stretch
from ottla.pipelines.spark_jvm import FileSystem
from ottla.pipelines.switching import Progress, Switch, progress, switched
from ottla.pipelines.topics import Clients
from ottla.pipelines.versions import Code, Version, Versions, code_of, following, isolated
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger("ottla.pipelines")

_SHADOWS = ".shadow"


@dataclass(frozen=True)
class Side:
    """One version of a pipeline, loaded."""

    plan: Plan
    code: Code


def home_of(sides: Iterable[Side]) -> Cluster | None:
    """The one cluster in which all flows of these versions commit. PipelineError if there are several."""
    homes: dict[Cluster | None, Flow] = {}
    for side in sides:
        for flow in side.plan.queries:
            homes.setdefault(side.plan.home(flow), flow)
    if len(homes) > 1:
        (one, first), (other, second) = list(homes.items())[:2]
        raise PipelineError(
            f"flow {second.name!r} commits in {_cluster(other)}, flow {first.name!r} in {_cluster(one)}: versions of a pipeline "
            "switch in one transaction of one cluster",
            second.place,
            hint="make it two pipelines; or stop it, run the new code, and `ottla pipeline reset` the flows whose state does not "
            "fit it",
        )
    return next(iter(homes), None)


def _cluster(cluster: Cluster | None) -> str:
    return "the pipeline's own cluster" if cluster is None else f"cluster {cluster.name!r}"


def loaded(file: Path) -> Side:
    """The pipeline of a file, beside other versions of it in the same process."""
    with isolated(file.resolve().parent):
        plan = graph.plan(loading.load(file))
        return Side(plan, code_of(file))


def loaded_version(versions: Versions, version: Version) -> Side:
    """A kept version."""
    folder = Path(tempfile.mkdtemp(prefix=f"version-{version.number}-", dir=scratch.directory()))
    return loaded(versions.put(version, folder))


@dataclass(frozen=True)
class FlowDifference:
    flow: str
    rows: Difference
    dead_letters: tuple[int, int]
    """Of the old and of the new version."""


@dataclass
class Upgrade:
    """An upgrade from the live version, `old`, to `new`. `project` is that of the live version."""

    spark: SparkSession
    clients: Clients
    project: Project
    old: Side
    new: Side

    def __post_init__(self) -> None:
        self.home = home_of((self.old, self.new))
        self._client = self.clients.of(self.home)

    def examine(self) -> list[FlowEdit]:
        """What the edit touches. PipelineError if a flow of the new version cannot run, or cannot be switched."""
        self.spark.conf.set("spark.sql.debug.maxToStringFields", "100000")
        try:
            before = edits.shapes(Frames(self.spark, self.project, self.old.plan), self.old.code)
        except PipelineError as error:
            raise PipelineError(
                f"the code of version {number_of(self.project.version)}, which is live, cannot be planned: {error}",
                hint="nothing was switched; `ottla pipeline run` runs the new code with the checkpoints that there are",
            ) from error
        after = edits.shapes(Frames(self.spark, self.project, self.new.plan), self.new.code)
        plan = self.new.plan
        reads = {flow.name: [other.name for other in plan.read_back(flow)] for flow in plan.queries}
        found = edits.with_readers(edits.compare(before, after), reads)
        for edit in found:
            if not edit.keeps_checkpoint and edit.new is not None:
                self._check_movable(edit.new)
        return found

    def _check_movable(self, flow: Flow) -> None:
        for node in self.new.plan.inputs[flow.name]:
            if isinstance(node, Files) and not node.static:
                raise PipelineError(
                    f"flow {flow.name!r} reads files as they arrive ({node.name!r}): a new query cannot go on from there",
                    flow.place,
                    hint="give the flow another name, or `ottla pipeline reset` it",
                )

    # The shadow

    def stretch(self, found: list[FlowEdit], records: int, from_ms: int | None) -> Stretch:
        """The records over which both versions run."""
        shadows = {edit.flow for edit in found if edit.is_compared}
        sources: list[Source] = []
        for side in (self.old, self.new):
            frames = Frames(self.spark, self.project, side.plan)
            for flow in side.plan.queries:
                if flow.name in shadows:
                    sources += [source for source in frames.sources(flow) if is_of(side.plan, source, shadows) is None]
        return stretch(self.clients, sources, records, from_ms)

    def shadowed(self, found: list[FlowEdit], over: Stretch, sample_max: int) -> list[FlowDifference]:
        """Run both versions of the edited flows over past records. The difference of their results."""
        with self._shadow_folder() as folder:
            sides = [
                Shadow(self.spark, self.project, side.plan, over, f"{folder}/{name}")
                for name, side in (("old", self.old), ("new", self.new))
            ]
            names = {edit.flow for edit in found if edit.is_compared}
            for side in sides:
                for flow in side.plan.queries:
                    if flow.name in names:
                        side.run(self.clients, flow)
            before, after = sides
            return [
                FlowDifference(
                    edit.flow,
                    compare(before.rows(edit.flow), after.rows(edit.flow), sample_max),
                    (before.dead_letters.get(edit.flow, 0), after.dead_letters.get(edit.flow, 0)),
                )
                for edit in found
                if edit.is_compared
            ]

    @contextmanager
    def _shadow_folder(self) -> Iterator[str]:
        if is_local(self.project.master):
            folder = tempfile.mkdtemp(prefix="shadow-", dir=scratch.directory())
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
            return
        remote = f"{self.project.storage.rstrip('/')}/{_SHADOWS}/{following(self.project.version)}"
        try:
            yield remote
        finally:
            FileSystem(self.spark, remote).delete(remote)

    # The switch

    def switch(self, found: list[FlowEdit], note: str = "") -> Project:
        """Make the new version live. Returns its project. PipelineError if it did not become live: the old one still is."""
        version = following(self.project.version)
        begun = {edit.flow for edit in found if edit.kind is not Kind.REMOVED and not edit.keeps_checkpoint}
        kept = {name: value for name, value in self.project.generations.items() if name not in begun}
        project = replace(self.project, version=version, generations={**kept, **dict.fromkeys(begun, version)})
        versions = Versions(self.spark, project.storage)
        self._remove_abandoned(versions)
        attempt = Switch(self._client, self.project, version)
        rebuilds = {
            edit.flow: self._rebuild(project, edit) for edit in found if edit.state is State.REBUILT and edit.new is not None
        }
        for name, rebuild in rebuilds.items():
            logger.info("Flow %s: rebuilding its state", name)
            rebuild.catch_up(progress(self._client, self.project.group_id(name), self._checkpoint(name).query_id()).marker)
        markers: dict[str, GroupOffsets] = {}
        for edit in found:
            flow = edit.new or edit.old
            assert flow is not None
            starting = self._marked(self.old if edit.new is None else self.new, flow)
            held = attempt.hold(edit.flow, starting, self._checkpoint(edit.flow).query_id())
            if edit.flow not in begun:
                assert held.marker is not None
                markers[edit.flow] = switched(held, held.marker._replace(version=version, hold=None))
                continue
            held = self._with_last_batch(edit, held)
            offsets = self._offsets(edit, held)
            marker = not_begun(version, version)
            if edit.flow in rebuilds:
                assert held.marker is not None
                marker, offsets = rebuilds[edit.flow].finish(held.marker, offsets)
            else:
                self._begin(project, flow, offsets)
            markers[edit.flow] = switched(held, marker, self._read(self.new, flow, self.home, offsets))
        versions.keep(
            Version(version, self.new.code, self.project.version, int(time.time() * 1000), note, dict(project.generations))
        )
        attempt.commit(markers)
        return project

    def _checkpoint(self, flow: str) -> Checkpoint:
        """The checkpoint of a flow of the live version."""
        return Checkpoint(self.spark, self.project.checkpoint(flow))

    def _rebuild(self, project: Project, edit: FlowEdit) -> Rebuild:
        assert edit.new is not None
        had_state = edit.old is not None and edit.had_state
        rebuild = Rebuild(
            self.spark,
            self.clients,
            project,
            self.new.plan,
            edit.new,
            self._checkpoint(edit.flow) if had_state else None,
            edit.same_watermarks,
        )
        rebuild.begin(self._origin(edit.flow))
        return rebuild

    def _with_last_batch(self, edit: FlowEdit, held: Progress) -> Progress:
        """The progress of a held flow that writes a table: the table may have one batch more than Kafka's transaction. A flow
        that comes back after an upgrade removed it has a checkpoint too."""
        old, side, marker = (edit.old, self.old, held.marker) if edit.old is not None else (edit.new, self.new, held.marker)
        if old is None or not isinstance(old.to, Table):
            return held
        assert marker is not None
        assert held.producer is not None
        checkpoint = self._checkpoint(old.name)
        if edit.old is None and marker.query_id not in (NOT_BEGUN, checkpoint.query_id()):
            return held
        group_id, planned = self.project.group_id(old.name), checkpoint.last_batch()
        begun = (
            marker if marker.query_id != NOT_BEGUN else marker._replace(query_id=checkpoint.query_id() or NOT_BEGUN, batch_id=-1)
        )
        last = tables.last_batch(self.spark, old, old.to, group_id, held.producer, begun, planned)
        if last <= begun.batch_id:
            return held
        if any(source.dead_letter is not None for source in self._sources(side, old)):
            raise PipelineError(
                f"flow {old.name!r}: batch {last} is in the table, but its dead letters may not be written",
                old.place,
                hint="nothing was switched: run the live version once more with `run --once`, then upgrade",
            )
        found = self._read(side, old, self.home, checkpoint.batch_offsets(last, {}).end)
        ends = {where: CommittedOffset(offset) for where, offset in found.items()}
        return replace(held, offsets={**held.offsets, **ends}, marker=begun._replace(batch_id=last))

    def _origin(self, flow: str) -> dict[str, Any]:
        """Where the sources of a flow began when it ran first."""
        note = self._checkpoint(flow).note() or {}
        return dict(note.get("origin") or note.get("starting") or {})

    def _sources(self, side: Side, flow: Flow) -> tuple[Source, ...]:
        return Frames(self.spark, self.project, side.plan).sources(flow)

    def _starting(self, side: Side, flow: Flow) -> PartitionOffsets:
        """Where a flow starts that never ran."""
        found: PartitionOffsets = {}
        for source in self._sources(side, flow):
            entry = topics.resolve(self.clients.of(source.cluster), source, source.starting)
            found.update(offsets_of(json.dumps(entry["offsets"])))
        return found

    def _read(self, side: Side, flow: Flow, cluster: Cluster | None, offsets: PartitionOffsets) -> PartitionOffsets:
        """The offsets of topics that a flow reads in a cluster."""
        mine = [source for source in self._sources(side, flow) if source.cluster == cluster]
        return {where: offset for where, offset in offsets.items() if any(graph.reads(source, where.topic) for source in mine)}

    def _marked(self, side: Side, flow: Flow) -> PartitionOffsets:
        """Offsets of a flow that never ran, for its marker. Without a topic at home: the end of the topic that it writes."""
        found = self._read(side, flow, self.home, self._starting(side, flow))
        if found or not isinstance(flow.to, Sink):
            return found
        topics.ensure_sink(self._client.options, flow.to)
        place = TopicPartition(flow.to.topic, 0)
        return {place: list_offsets(self._client, {place: LATEST})[place].offset}

    def _offsets(self, edit: FlowEdit, held: Progress) -> PartitionOffsets:
        """Where the new version of a flow goes on. For topics that the old one did not read: where its sources start."""
        assert edit.new is not None
        at_home = {where: entry.offset for where, entry in held.offsets.items()}
        if edit.old is not None and held.place is not None and not self._read(self.old, edit.old, self.home, {held.place: 0}):
            del at_home[held.place]  # the end of the topic that the flow writes
        found: PartitionOffsets = {}
        for source in self._sources(self.new, edit.new):
            done = at_home if source.cluster == self.home else self._elsewhere(edit.old, source.cluster, held)
            entry = topics.resolve(self.clients.of(source.cluster), source, source.starting)
            start = offsets_of(json.dumps(entry["offsets"]))
            found.update({where: done.get(where, offset) for where, offset in start.items()})
        return found

    def _elsewhere(self, old: Flow | None, cluster: Cluster | None, held: Progress) -> PartitionOffsets:
        """How far the old version has read another cluster. The group at home does not say it, the checkpoint does."""
        if old is None:
            return {}
        assert held.marker is not None
        checkpoint = self._checkpoint(old.name)
        if held.marker.query_id == checkpoint.query_id():
            return self._read(self.old, old, cluster, checkpoint.batch_offsets(held.marker.batch_id, {}).end)
        found: PartitionOffsets = {}
        for entry in (checkpoint.note() or {}).get("starting", {}).values():
            found.update(offsets_of(json.dumps(entry["offsets"])))
        return self._read(self.old, old, cluster, found)

    def _begin(self, project: Project, flow: Flow, offsets: PartitionOffsets) -> None:
        """Note in a new checkpoint where it begins."""
        sources = self._sources(self.new, flow)
        starting = {}
        for source in sources:
            places = topics.places_of(self.clients.of(source.cluster), source)
            mine = nested({where: offsets[where] for where in places if where in offsets})
            starting[source.name] = {"option": json.dumps(mine), "offsets": mine}
        Checkpoint(self.spark, project.checkpoint(flow.name)).write_note(
            {
                "pipeline": project.name,
                "flow": flow.name,
                "inputs": inputs_of(self.new.plan, flow, sources),
                "starting": starting,
                "origin": self._origin(flow.name) or starting,
            }
        )

    def _remove_abandoned(self, versions: Versions) -> None:
        """Remove what attempts left behind that did not become live, and the checkpoints of versions before the previous one."""
        line = lineage(versions, self.project.version)
        files = FileSystem(self.spark, self.project.storage)
        wanted = {generation for name in line[:2] if (kept := versions.read(name)) for generation in kept.generations.values()}
        wanted |= set(self.project.generations.values())
        for name in versions.names():
            if number_of(name) >= number_of(self.project.version) and name not in line:
                files.delete(versions.folder(name))
        for name in files.names(self.project.storage):
            flow, found, generation = name.partition(".v")
            if flow and found and generation not in wanted:
                files.delete(f"{self.project.storage.rstrip('/')}/{name}")


def lineage(versions: Versions, version: str) -> list[str]:
    """The version and those that were live before it, newest first."""
    found: list[str] = []
    name: str | None = version
    while name is not None and name not in found:
        found.append(name)
        kept = versions.read(name)
        name = kept.previous if kept is not None else None
    return found
