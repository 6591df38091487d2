"""What readers make of the published documents: each pipeline with its plan and its flows.

A record that is no document of this version is left out, and so is a flow that is not in the plan of its pipeline: it was
removed from the file.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ottla.pipelines.published.documents import FAILED, RUNNING, STARTING, STOPPED, VERSION

LOST = "lost"
"""A driver that neither said that it stopped nor was heard since: killed, cut off, or suspended."""
_HEARTBEATS_MISSED = 3
_FLOW_KEYS = {"place", "state", "error", "progress", "heartbeat_ms", "heartbeat_interval_ms"}
_WORST_FIRST = (FAILED, LOST, STARTING, RUNNING, STOPPED)


@dataclass(frozen=True)
class PublishedFlow:
    name: str
    document: Mapping[str, Any]

    @property
    def heartbeat_ms(self) -> int:
        return int(self.document["heartbeat_ms"])

    @property
    def progress(self) -> Mapping[str, Any]:
        """Empty before the first batch of the run."""
        return self.document["progress"] or {}

    def state(self, now_ms: int) -> str:
        said = str(self.document["state"])
        patience_ms = _HEARTBEATS_MISSED * int(self.document["heartbeat_interval_ms"])
        return LOST if said in (STARTING, RUNNING) and now_ms - self.heartbeat_ms > patience_ms else said

    def checkpoint_age_s(self, now_ms: int) -> float | None:
        """The time since Spark recorded the last batch as done. None before the first batch of the run."""
        at = self.progress.get("checkpoint_at")
        return None if at is None else max(now_ms / 1000 - datetime.fromisoformat(at).timestamp(), 0.0)

    def error_text(self) -> str | None:
        """Why the flow failed, else why its last batch runs again, with file and line."""
        error = self.document["error"]
        if error is not None:
            place = error["place"]
            return f"{place}: {error['message']}" if place else str(error["message"])
        last = self.progress.get("last_error")
        return f"{self.document['place']}: {last}" if last else None


@dataclass(frozen=True)
class PublishedPipeline:
    name: str
    plan: Mapping[str, Any]
    flows: tuple[PublishedFlow, ...]

    @property
    def heartbeat_ms(self) -> int | None:
        return max((flow.heartbeat_ms for flow in self.flows), default=None)

    def runs(self, now_ms: int) -> bool:
        """Whether its driver was heard: one of several flows may have failed."""
        return any(flow.state(now_ms) in (STARTING, RUNNING) for flow in self.flows)

    def state(self, now_ms: int) -> str:
        """The state of the flow that needs most attention."""
        states = {flow.state(now_ms) for flow in self.flows}
        return next((state for state in _WORST_FIRST if state in states), STOPPED)


def pipelines(latest: Mapping[str, str]) -> list[PublishedPipeline]:
    """The pipelines in the values of the topic by key, in the order of their names."""
    documents = {key: found for key, text in latest.items() if (found := _document(text)) is not None}
    return [
        PublishedPipeline(name, plan, tuple(_flows(name, plan, documents)))
        for name, plan in sorted(documents.items())
        if "/" not in name and isinstance(plan.get("flows"), list)
    ]


def _flows(name: str, plan: Mapping[str, Any], documents: Mapping[str, Mapping[str, Any]]) -> list[PublishedFlow]:
    queries = [str(flow["name"]) for flow in plan["flows"] if flow.get("to") is not None]
    found = [(flow, documents.get(f"{name}/{flow}")) for flow in queries]
    return [PublishedFlow(flow, document) for flow, document in found if document is not None and document.keys() >= _FLOW_KEYS]


def _document(text: str) -> dict[str, Any] | None:
    try:
        found = json.loads(text)
    except ValueError:
        return None
    return found if isinstance(found, dict) and found.get("version") == VERSION else None
