"""The documents that a run publishes: its plan, and for each flow its state and progress.

Nothing secret is in them: no options of sources and tables, no client properties, no query.
"""

from __future__ import annotations

import os
import socket
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla import __version__
from ottla.pipelines.definitions import Cluster, Files, Flow, Sink, Source, Table
from ottla.pipelines.failure import PipelineError
from ottla.pipelines.graph import Plan
from ottla.pipelines.project import Project

if TYPE_CHECKING:
    from ottla.pipelines.progress import Watch
    from ottla.pipelines.running import PipelineRun

VERSION = 1
HEARTBEAT_INTERVAL_MS = 10_000
STARTING, RUNNING, STOPPED, FAILED = "starting", "running", "stopped", "failed"


@dataclass(frozen=True)
class Run:
    """One run of a pipeline: two drivers of the same pipeline have different ids."""

    project: Project
    plan: Plan
    run_id: str = field(default_factory=lambda: str(uuid.uuid4()))
    started_ms: int = field(default_factory=lambda: now_ms())

    def plan_document(self) -> dict[str, Any]:
        project, plan = self.project, self.plan
        inputs = {node.name: node for nodes in plan.inputs.values() for node in nodes}
        return {
            **self._head(),
            "started_ms": self.started_ms,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "ottla": __version__,
            "file": str(project.file.resolve()),
            "bootstrap_servers": project.bootstrap_servers,
            "clusters": [each.name for each in plan.clusters if each is not None],
            "storage": project.storage,
            "trigger_ms": project.trigger_ms,
            "master": project.master,
            "metrics": project.metrics,
            "sources": [_source(node) for node in inputs.values() if isinstance(node, Source)],
            "files": [_files(node) for node in inputs.values() if isinstance(node, Files)],
            "flows": [self._flow(flow) for flow in plan.flows],
            "edges": list(_edges(plan)),
        }

    def flow_document(
        self, flow: str, state: str, progress: dict[str, Any] | None, error: BaseException | None = None
    ) -> dict[str, Any]:
        """The flow now, without the time of the heartbeat."""
        place = next(str(each.place) for each in self.plan.queries if each.name == flow)
        shown = None if error is None else _error(error)
        return {**self._head(), "flow": flow, "place": place, "state": state, "error": shown, "progress": progress}

    def _head(self) -> dict[str, Any]:
        return {"version": VERSION, "pipeline": self.project.name, "run": self.run_id}

    def _flow(self, flow: Flow) -> dict[str, Any]:
        return {
            "name": flow.name,
            "place": str(flow.place),
            "group": self.project.group_id(flow.name) if flow.to is not None else None,
            "checkpoint": self.project.checkpoint(flow.name) if flow.to is not None else None,
            **_of_cluster(self.plan.home(flow) if flow.to is not None else None),
            "inputs": [{"kind": _kind(node), "name": node.name} for node in self.plan.inputs[flow.name]],
            "to": None if flow.to is None else _target(flow.to),
            "output_mode": flow.output_mode,
        }


def of_flows(described: Run, run: PipelineRun, watch: Watch, error: BaseException | None = None) -> dict[str, dict[str, Any]]:
    """The document of each flow now. `error` ended the run: it failed every flow, unless it is known which one failed."""
    shown = {}
    for flow in run.plan.queries:
        failure: BaseException | None = run.failures.get(flow.name)
        state = run.state(flow.name)
        if error is not None and not run.failures:
            failure, state = error, FAILED
        shown[flow.name] = described.flow_document(flow.name, state, watch.latest.get(flow.name), failure)
    return shown


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def _source(source: Source) -> dict[str, Any]:
    return {
        "name": source.name,
        "topics": list(source.topics),
        "pattern": source.pattern,
        "dead_letter": source.dead_letter,
        "place": str(source.place),
        **_of_cluster(source.cluster),
    }


def _of_cluster(cluster: Cluster | None) -> dict[str, str]:
    """Nothing for the pipeline's own cluster."""
    return {} if cluster is None else {"cluster": cluster.name}


def _files(files: Files) -> dict[str, Any]:
    return {
        "name": files.name,
        "path": files.path,
        "format": files.format,
        "static": files.static,
        "place": str(files.place),
    }


def _kind(node: Source | Files | Flow) -> str:
    return {Source: "source", Files: "files", Flow: "flow"}[type(node)]


def _target(target: Sink | Table) -> dict[str, Any]:
    if isinstance(target, Sink):
        return {"kind": "topic", "name": target.topic, **_of_cluster(target.cluster)}
    return {"kind": "table", "name": target.path, "format": target.format}


def _edges(plan: Plan) -> Iterator[dict[str, Any]]:
    """The graph: which topic, files or view feeds which flow, and what each flow writes. Dead letters have `dead_letter` set."""
    for flow in plan.flows:
        itself = {"kind": "flow", "name": flow.name}
        for node in plan.inputs[flow.name]:
            for place in _places(node):
                yield {"from": place, "to": itself, "dead_letter": False}
        if flow.to is not None:
            home = _of_cluster(plan.home(flow))
            yield {"from": itself, "to": {name: value for name, value in _target(flow.to).items() if name != "format"},
                   "dead_letter": False}  # fmt: skip
            for letters in sorted({source.dead_letter for source in plan.sources(flow) if source.dead_letter is not None}):
                yield {"from": itself, "to": {"kind": "topic", "name": letters, **home}, "dead_letter": True}


def _places(node: Source | Files | Flow) -> list[dict[str, str]]:
    """Where an input's rows come from. A flow that writes a topic is read back from the topic."""
    if isinstance(node, Files):
        return [{"kind": "table", "name": node.path}]
    if isinstance(node, Flow):
        if isinstance(node.to, Sink):
            return [{"kind": "topic", "name": node.to.topic, **_of_cluster(node.to.cluster)}]
        return [{"kind": "flow", "name": node.name}]
    if node.pattern is not None:
        return [{"kind": "pattern", "name": node.pattern, **_of_cluster(node.cluster)}]
    return [{"kind": "topic", "name": topic, **_of_cluster(node.cluster)} for topic in node.topics]


def _error(error: BaseException) -> dict[str, Any]:
    if isinstance(error, PipelineError):
        place = None if error.place is None else str(error.place)
        return {"message": error.message, "place": place, "hint": error.hint}
    lines = str(error).splitlines()
    return {"message": lines[0] if lines else type(error).__name__, "place": None, "hint": None}
