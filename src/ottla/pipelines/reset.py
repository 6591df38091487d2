"""Make flows start anew: remove their checkpoints. Topics and tables are not touched. Needs a broker only to set a start."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from ottla.client.offsets import commit_offsets
from ottla.client.transactions import CommittedOffset
from ottla.pipelines.backfill import time_text
from ottla.pipelines.checkpoint import NOTE, check_owner, inputs_of, local_folder, note_in, offsets_of
from ottla.pipelines.definitions import Cluster, Flow
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.graph import Plan
from ottla.pipelines.marker import FIRST, not_begun
from ottla.pipelines.project import Project
from ottla.pipelines.topics import Clients, resolve
from ottla.pipelines.versions import FOLDER
from ottla.types import TopicPartition

_START = {"earliest": "the beginning of its topics", "latest": "the end of its topics"}


def reset(project: Project, plan: Plan, flows: list[str], to: str | int | None = None, *, execute: bool = True) -> list[str]:
    """Remove the checkpoints of these flows. Returns the steps; without `execute` only those.

    With `to` (earliest, latest, or a time in milliseconds) the next run starts there.
    """
    chosen = [flow for flow in plan.queries if flow.name in flows]
    project = _live(project, plan)
    done = []
    starting: dict[str, dict[str, Any]] = {}
    if to is not None:
        if isinstance(to, str) and to not in ("earliest", "latest"):
            raise PipelineError(f"--to {to!r} is neither earliest nor latest nor a time")
        with Clients(project) as clients:
            for flow in chosen:
                if plan.read_back(flow):
                    raise PipelineError(
                        f"flow {flow.name!r} reads the topic of another flow and always starts at its beginning",
                        flow.place,
                        hint="reset it without --to",
                    )
                starting[flow.name] = {
                    source.name: resolve(clients.of(source.cluster), source, to) for source in plan.sources(flow)
                }
    for flow in chosen:
        location = project.checkpoint(flow.name)
        folder = local_folder(location)
        if folder is None:
            raise PipelineError(
                f"{location} is not on this machine", hint="delete it with the tools of its storage, then run the pipeline again"
            )
        existed = folder.exists()
        if existed:
            _check_owner(folder, project, flow)
            if execute:
                shutil.rmtree(folder)
        removed = "removed" if execute else "would remove"
        done.append(f"{flow.name}: {f'{removed} checkpoint {location}' if existed else 'has no checkpoint'}")
        if to is not None:
            if execute:
                _set_start(project, plan, flow, folder, starting[flow.name])
            done.append(f"{flow.name}: the next run starts at {_START.get(str(to)) or f'the records of {time_text(int(to))}'}")
    return done


def _live(project: Project, plan: Plan) -> Project:
    """The project with the checkpoints of the live version. Without an upgrade there is only one, and no broker is needed."""
    kept = local_folder(f"{project.storage}/{FOLDER}")
    if kept is not None and kept.is_dir() and all(each.name == FIRST for each in kept.iterdir()):
        return project
    if kept is not None and not kept.is_dir():
        return project
    with Clients(project) as clients:
        return clients.live_project(plan, takes_over=True)


def _check_owner(folder: Path, project: Project, flow: Flow) -> None:
    note = folder / NOTE
    if not note.is_file():
        raise PipelineError(f"{folder} is not a checkpoint of a pipeline and is kept")
    try:
        owner = note_in(note.read_text(errors="replace"), str(note))
    except PipelineError:
        return  # a damaged note, in the directory of this flow
    check_owner(owner, str(folder), project.name, flow.name)


def _set_start(project: Project, plan: Plan, flow: Flow, folder: Path, starting: dict[str, Any]) -> None:
    folder.mkdir(parents=True)
    note = {"pipeline": project.name, "flow": flow.name, "inputs": inputs_of(plan, flow), "starting": starting}
    draft = folder / f"_{NOTE}"
    draft.write_text(json.dumps(note, indent=1))
    draft.replace(folder / NOTE)
    by_cluster: dict[Cluster | None, dict[TopicPartition, CommittedOffset]] = {}
    for source in plan.sources(flow):
        entry = offsets_of(json.dumps(starting[source.name]["offsets"]))
        by_cluster.setdefault(source.cluster, {}).update({where: CommittedOffset(offset) for where, offset in entry.items()})
    home = by_cluster.get(plan.home(flow), {})
    if project.version != FIRST and home:
        first = min(home)
        home[first] = CommittedOffset(home[first].offset, str(not_begun(project.version, project.generation(flow.name))))
    # For lag tools, until the first batch commits.
    with Clients(project) as clients:
        for cluster, offsets in by_cluster.items():
            commit_offsets(clients.of(cluster), project.group_id(flow.name), offsets)
