"""What a pipeline has done, and beginning anew: `status` and `reset`. Needs a broker, no Spark unless storage is remote.

Owns: comparing the flow's group with the ends of its topics, and removing a checkpoint. A reset never touches data.
"""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ottla.client.blocking import Client
from ottla.client.offsets import LATEST, commit_offsets, committed_offsets, list_offsets
from ottla.client.transactions import CommittedOffset
from ottla.errors import KafkaError
from ottla.pipelines.checkpoint import NOTE, check_owner, local_folder, note_in, offsets_of, query_id_in
from ottla.pipelines.definitions import Flow, Sink
from ottla.pipelines.exactly_once import marker_in
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.graph import Plan, reads
from ottla.pipelines.project import Project
from ottla.pipelines.running import inputs_of
from ottla.pipelines.topics import connect, resolve


@dataclass(frozen=True)
class Standing:
    flow: str
    group_id: str
    checkpoint: str
    query_id: str | None
    """None: nothing was run yet, or storage cannot be seen from here."""
    batch: int | None
    """The last one that Spark has noted."""
    sink_batch: int | None
    """The last one that is in."""
    committed: int
    lag: int | None

    def document(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def status(project: Project, plan: Plan) -> list[Standing]:
    options = connect(project)
    found = []
    with Client(options) as client:
        for flow in plan.queries:
            found.append(_standing(client, project, plan, flow))
    return found


def _standing(client: Client, project: Project, plan: Plan, flow: Flow) -> Standing:
    group_id = project.group_id(flow.name)
    committed = committed_offsets(client, group_id)
    markers = [each for each in (marker_in(entry.metadata) for entry in committed.values()) if each is not None]
    # A group keeps what was committed for topics that the flow read once, and the marker's place.
    own = {where: entry for where, entry in committed.items() if _reads(plan, flow, where.topic)}
    lag: int | None = None
    if own:
        try:
            ends = list_offsets(client, dict.fromkeys(own, LATEST), read_committed=True)
            lag = sum(max(ends[where].offset - entry.offset, 0) for where, entry in own.items())
        except KafkaError:
            lag = None  # a topic is gone
    query_id, batch = _local(project.checkpoint(flow.name))
    mine = [marker.batch_id for marker in markers if query_id is None or marker.query_id == query_id]
    return Standing(
        flow.name,
        group_id,
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


def _local(location: str) -> tuple[str | None, int | None]:
    folder = local_folder(location)
    if folder is None or not (folder / "metadata").is_file():
        return None, None
    query_id = query_id_in((folder / "metadata").read_text(errors="replace"), str(folder / "metadata"))
    commits = [int(file.name) for file in (folder / "commits").glob("[0-9]*") if file.name.isdecimal()]
    return query_id, max(commits, default=None)


def reset(project: Project, plan: Plan, flows: list[str], to: str | None = None) -> list[str]:
    """Remove the checkpoints of these flows; with `to` (earliest, latest) the next start begins there. Returns what it did."""
    chosen = [flow for flow in plan.queries if flow.name in flows]
    done = []
    starting: dict[str, dict[str, Any]] = {}
    if to is not None:
        if to not in ("earliest", "latest"):
            raise PipelineError(f"--to {to!r}", hint="earliest or latest")
        with Client(connect(project)) as client:
            for flow in chosen:
                if plan.read_back(flow):
                    raise PipelineError(
                        f"flow {flow.name!r} reads the topic of another flow: it can begin anew, but not elsewhere", flow.place
                    )
                starting[flow.name] = {source.name: resolve(client, source, to) for source in plan.sources(flow)}
    for flow in chosen:
        location = project.checkpoint(flow.name)
        folder = local_folder(location)
        if folder is None:
            raise PipelineError(
                f"{location} is not on this machine", hint="remove it with the tools of its storage, then run the flow again"
            )
        existed = folder.exists()
        if existed:
            _check_owner(folder, project, flow)
            shutil.rmtree(folder)
        done.append(f"{flow.name}: {'checkpoint ' + location + ' removed' if existed else 'there was no checkpoint'}")
        if to is not None:
            _begin_at(project, plan, flow, folder, starting[flow.name])
            done.append(f"{flow.name}: begins at the {'start' if to == 'earliest' else 'end'} of what is there")
    return done


def _check_owner(folder: Path, project: Project, flow: Flow) -> None:
    note = folder / NOTE
    if not note.is_file():
        raise PipelineError(f"{folder} is no checkpoint of a pipeline: it is left alone")
    try:
        owner = note_in(note.read_text(errors="replace"), str(note))
    except PipelineError:
        return  # it cannot say whose it is; it lies where that of this flow does
    check_owner(owner, str(folder), project.name, flow.name)


def _begin_at(project: Project, plan: Plan, flow: Flow, folder: Path, starting: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    note = {"pipeline": project.name, "flow": flow.name, "inputs": inputs_of(plan, flow), "starting": starting}
    draft = folder / f"_{NOTE}"
    draft.write_text(json.dumps(note, indent=1))
    draft.replace(folder / NOTE)
    offsets = {
        where: CommittedOffset(offset)
        for entry in starting.values()
        for where, offset in offsets_of(json.dumps(entry["offsets"])).items()
    }
    # Lag tools show at once where it will begin.
    with Client(connect(project)) as client:
        commit_offsets(client, project.group_id(flow.name), offsets)
