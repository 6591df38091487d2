"""A backfill: flows run over the records of a stretch of time, beside the live pipeline, and end.

It has a name, groups, transactional ids and checkpoints of its own, so the live pipeline does not notice it. The same stretch
again goes on where it was interrupted, and does nothing once it is complete.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

from ottla.pipelines.definitions import Flow, Sink
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.graph import Plan, reads_sink
from ottla.pipelines.project import Project, TimeRange


def project_of(project: Project, stretch: TimeRange) -> Project:
    """The settings of the backfill."""
    if stretch.from_ms >= stretch.to_ms:
        raise PipelineError(f"there is nothing between {time_text(stretch.from_ms)} and {time_text(stretch.to_ms)}")
    name = f"backfill-{_stamp(stretch.from_ms)}-{_stamp(stretch.to_ms)}"
    return replace(project, name=f"{project.name}.{name}", storage=f"{project.storage.rstrip('/')}/{name}", stretch=stretch)


def plan_of(plan: Plan, names: list[str]) -> tuple[Plan, list[Flow]]:
    """The plan of the backfill, and the flows left out: the live queries get what the others write to their topics."""
    fed = [flow for flow in plan.queries if _is_fed(plan, flow)]
    chosen = [flow for flow in plan.queries if (flow.name in names if names else flow not in fed)]
    for flow in chosen:
        if flow in fed:
            raise PipelineError(
                f"flow {flow.name!r} reads the topic of another flow",
                flow.place,
                hint="backfill that flow: the live pipeline passes its records on",
            )
        if flow.output_mode == "complete":
            raise PipelineError(
                f"flow {flow.name!r} has output mode complete: results of a part of the records would replace the live ones",
                flow.place,
                hint="choose other flows with --flow",
            )
    if not chosen:
        raise PipelineError("there is no flow to backfill: each reads the topic of another flow")
    kept = {each.name for flow in chosen for each in plan.computed_in(flow)}
    return Plan(tuple(flow for flow in plan.flows if flow.name in kept), plan.inputs), fed


def _is_fed(plan: Plan, flow: Flow) -> bool:
    if plan.read_back(flow):
        return True
    written = [other.to for other in plan.queries if isinstance(other.to, Sink)]
    return any(reads_sink(source, sink) for source in plan.sources(flow) for sink in written)


def time_text(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _stamp(time_ms: int) -> str:
    moment = datetime.fromtimestamp(time_ms // 1000, UTC).strftime("%Y%m%dT%H%M%S")
    return f"{moment}.{time_ms % 1000:03d}" if time_ms % 1000 else moment
