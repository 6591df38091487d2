"""How far each flow has come: its group's committed offsets, the ends of its topics, its checkpoint. Needs a broker, no Spark."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ottla.client.blocking import Client
from ottla.client.offsets import LATEST, committed_offsets, list_offsets
from ottla.errors import KafkaError
from ottla.pipelines.checkpoint import local_folder, query_id_in
from ottla.pipelines.definitions import Flow, Sink
from ottla.pipelines.graph import Plan, reads
from ottla.pipelines.marker import marker_in, number_of
from ottla.pipelines.project import Project
from ottla.pipelines.switching import live_project
from ottla.pipelines.topics import connect


@dataclass(frozen=True)
class FlowStatus:
    flow: str
    group_id: str
    version: int
    """Of the pipeline, by the flow's marker."""
    checkpoint: str
    query_id: str | None
    """None: the flow has not run yet, or its checkpoint is not on this machine."""
    batch: int | None
    """The last batch that Spark's checkpoint holds."""
    sink_batch: int | None
    """The last committed batch, by the group's marker."""
    committed: int
    lag: int | None

    def document(self) -> dict[str, Any]:
        return asdict(self)


def status(project: Project, plan: Plan) -> list[FlowStatus]:
    with Client(connect(project)) as client:
        project = live_project(client, project, [flow.name for flow in plan.queries])
        return [_status(client, project, plan, flow) for flow in plan.queries]


def _status(client: Client, project: Project, plan: Plan, flow: Flow) -> FlowStatus:
    group_id = project.group_id(flow.name)
    committed = committed_offsets(client, group_id)
    markers = [each for each in (marker_in(entry.metadata) for entry in committed.values()) if each is not None]
    # The group may also hold offsets of topics that the flow no longer reads.
    own = {where: entry for where, entry in committed.items() if _reads(plan, flow, where.topic)}
    lag: int | None = None
    if own:
        try:
            ends = list_offsets(client, dict.fromkeys(own, LATEST), read_committed=True)
            lag = sum(max(ends[where].offset - entry.offset, 0) for where, entry in own.items())
        except KafkaError:
            lag = None  # a topic was deleted
    query_id, batch = _local_progress(project.checkpoint(flow.name))
    mine = [marker.batch_id for marker in markers if query_id is None or marker.query_id == query_id]
    return FlowStatus(
        flow.name,
        group_id,
        number_of(project.version),
        project.checkpoint(flow.name),
        query_id,
        batch,
        max(mine, default=None),
        sum(entry.offset for entry in own.values()),
        lag,
    )


def _reads(plan: Plan, flow: Flow, topic: str) -> bool:
    back = {other.to.topic for other in plan.read_back(flow) if isinstance(other.to, Sink)}
    return topic in back or any(reads(source, topic) for source in plan.sources(flow))


def _local_progress(location: str) -> tuple[str | None, int | None]:
    folder = local_folder(location)
    if folder is None or not (folder / "metadata").is_file():
        return None, None
    query_id = query_id_in((folder / "metadata").read_text(errors="replace"), str(folder / "metadata"))
    commits = [int(file.name) for file in (folder / "commits").glob("[0-9]*") if file.name.isdecimal()]
    return query_id, max(commits, default=None)
