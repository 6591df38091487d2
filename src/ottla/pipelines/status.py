"""How far each flow has come: its group's committed offsets, the ends of its topics, its checkpoint. Needs a broker, no Spark."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from ottla.client.blocking import Client
from ottla.client.offsets import LATEST, committed_offsets, list_offsets
from ottla.client.transactions import GroupOffsets
from ottla.errors import KafkaError
from ottla.pipelines.checkpoint import local_folder, query_id_in
from ottla.pipelines.definitions import Cluster, Flow, Sink
from ottla.pipelines.graph import Plan, reads
from ottla.pipelines.marker import marker_in, number_of
from ottla.pipelines.project import Project
from ottla.pipelines.topics import Clients


@dataclass(frozen=True)
class FlowStatus:
    flow: str
    cluster: str | None
    """Where its transactions are, with group and marker. None: the pipeline's own."""
    reads_clusters: tuple[str | None, ...]
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
    with Clients(project) as clients:
        project = clients.live_project(plan)
        return [_status(clients, project, plan, flow) for flow in plan.queries]


def _status(clients: Clients, project: Project, plan: Plan, flow: Flow) -> FlowStatus:
    group_id, home = project.group_id(flow.name), plan.home(flow)
    markers = [
        each
        for each in (marker_in(entry.metadata) for entry in committed_offsets(clients.of(home), group_id).values())
        if each is not None
    ]
    done, lags = 0, []
    for cluster in plan.clusters_read(flow):
        client = clients.of(cluster)
        # The group may also hold offsets of topics that the flow no longer reads.
        committed = committed_offsets(client, group_id)
        own = {where: entry for where, entry in committed.items() if _reads(plan, flow, cluster, where.topic)}
        done += sum(entry.offset for entry in own.values())
        if own:
            lags.append(_lag(client, own))
    query_id, batch = _local_progress(project.checkpoint(flow.name))
    mine = [marker.batch_id for marker in markers if query_id is None or marker.query_id == query_id]
    return FlowStatus(
        flow.name,
        None if home is None else home.name,
        tuple(None if each is None else each.name for each in plan.clusters_read(flow)),
        group_id,
        number_of(project.version),
        project.checkpoint(flow.name),
        query_id,
        batch,
        max(mine, default=None),
        done,
        None if not lags or None in lags else sum(each or 0 for each in lags),
    )


def _lag(client: Client, committed: GroupOffsets) -> int | None:
    """None if a topic was deleted."""
    try:
        ends = list_offsets(client, dict.fromkeys(committed, LATEST), read_committed=True)
    except KafkaError:
        return None
    return sum(max(ends[where].offset - entry.offset, 0) for where, entry in committed.items())


def _reads(plan: Plan, flow: Flow, cluster: Cluster | None, topic: str) -> bool:
    back = {(other.to.cluster, other.to.topic) for other in plan.read_back(flow) if isinstance(other.to, Sink)}
    return (cluster, topic) in back or any(source.cluster == cluster and reads(source, topic) for source in plan.sources(flow))


def _local_progress(location: str) -> tuple[str | None, int | None]:
    folder = local_folder(location)
    if folder is None or not (folder / "metadata").is_file():
        return None, None
    query_id = query_id_in((folder / "metadata").read_text(errors="replace"), str(folder / "metadata"))
    commits = [int(file.name) for file in (folder / "commits").glob("[0-9]*") if file.name.isdecimal()]
    return query_id, max(commits, default=None)
