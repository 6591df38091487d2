"""What of a cluster needs somebody's attention. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from ottla.cli.dlq.letters import is_dead_letter_name
from ottla.console.watch import Snapshot, lag_of, lag_s_of, lead_of, records_of
from ottla.exporter.consumption import GroupProgress

_SHOWN_MAX: Final = 50
_BEHIND_S: Final = 300.0
"""A group whose lag is older than this is behind."""
_LEAD_S: Final = 600.0
"""A group that retention reaches within this loses records."""
_ORDER: Final = ("bad", "warning", "note")


@dataclass(frozen=True, slots=True)
class Point:
    level: str
    kind: str
    text: str
    href: str | None = None
    count: int = 1

    def document(self) -> dict[str, Any]:
        return {"level": self.level, "kind": self.kind, "text": self.text, "href": self.href, "count": self.count}


def health_of(points: Sequence[Point]) -> str:
    levels = {point.level for point in points}
    return "bad" if "bad" in levels else "warning" if "warning" in levels else "ok"


def points_of(snapshot: Snapshot, pipelines: Sequence[Mapping[str, Any]] = ()) -> list[Point]:
    """The worst first. `pipelines` is what they have published."""
    of_cluster = [*_brokers(snapshot), *_topics(snapshot), *_transactions(snapshot), *_groups(snapshot), *_unread(snapshot)]
    found = [*of_cluster, *_pipelines(pipelines)]
    found.sort(key=lambda point: (_ORDER.index(point.level), point.kind))
    return found[:_SHOWN_MAX]


def _brokers(snapshot: Snapshot) -> Iterator[Point]:
    reading = snapshot.reading
    known = {node.broker_id for node in reading.brokers}
    away = {broker for topic in reading.topics.values() for each in topic.partitions.values() for broker in each.replicas} - known
    for broker in sorted(away):
        yield Point("bad", "broker_down", f"broker {broker} has replicas but is not in the cluster", "/brokers")
    if reading.controller_id not in known:
        yield Point("bad", "broker_down", "the cluster has no controller", "/brokers")


def _topics(snapshot: Snapshot) -> Iterator[Point]:
    for topic in snapshot.reading.topics.values():
        href = f"/topics/{quote(topic.name, safe='')}"
        offline = [index for index, each in topic.partitions.items() if each.leader_id < 0]
        short = [index for index, each in topic.partitions.items() if each.leader_id >= 0 and len(each.isr) < len(each.replicas)]
        if offline:
            what = f"partition {offline[0]} has" if len(offline) == 1 else f"{len(offline)} partitions have"
            yield Point("bad", "offline_partition", f"{topic.name}: {what} no leader", href, len(offline))
        if short:
            what = f"partition {short[0]} is" if len(short) == 1 else f"{len(short)} partitions are"
            yield Point("warning", "under_replicated", f"{topic.name}: {what} under-replicated", href, len(short))
        letters = records_of(topic)
        if is_dead_letter_name(topic.name) and letters:
            yield Point(
                "note",
                "dead_letters",
                f"{topic.name} holds {letters:,} offsets",
                f"/dead-letters/{quote(topic.name, safe='')}",
                letters,
            )


def _transactions(snapshot: Snapshot) -> Iterator[Point]:
    found = snapshot.reading.transactions
    for (topic, partition), count in (found.hanging if found is not None else {}).items():
        noun = "transaction hangs" if count == 1 else "transactions hang"
        yield Point(
            "bad",
            "hanging_transaction",
            f"{count} {noun} in {topic}-{partition}: read_committed consumers wait",
            "/transactions",
            count,
        )


def _groups(snapshot: Snapshot) -> Iterator[Point]:
    for name, progress in snapshot.groups.items():
        href = f"/groups/{quote(name, safe='')}"
        lag, lag_s, left_s = lag_of(progress), lag_s_of(progress), _left_s_of(progress)
        lead = lead_of(progress)
        if lead is not None and lead < 0:
            yield Point("bad", "lead_low", f"group {name} has lost records: retention passed its offsets", href)
        elif left_s is not None:
            yield Point("warning", "lead_low", f"retention reaches group {name} within {left_s:.0f} s", href)
        if lag and lag_s is not None and lag_s > _BEHIND_S and progress.group.members:
            yield Point("warning", "lag_growing", f"group {name} is {lag_s / 60:.0f} minutes behind ({lag:,} records)", href, lag)


def _left_s_of(progress: GroupProgress) -> float | None:
    """How soon retention reaches the group, if that is soon. Where it is short, a record is old when half its time is over."""
    soon = (
        each.lead_s
        for each in progress
        if each.lead_s is not None and each.lag_s is not None and each.lead_s <= _LEAD_S and each.lead_s < each.lag_s
    )
    return min(soon, default=None)


def _pipelines(pipelines: Sequence[Mapping[str, Any]]) -> Iterator[Point]:
    for pipeline in pipelines:
        name, href = pipeline["pipeline"], f"/pipelines/{quote(pipeline['pipeline'], safe='')}"
        for flow in pipeline["flows"]:
            error = flow.get("error") or {}
            if flow["state"] == "failed":
                text = f"pipeline {name}: flow {flow['flow']} failed: {error.get('message', 'it does not say why')}"
                yield Point("warning", "pipeline_failed", text, href)
            elif flow["state"] == "lost":
                yield Point("warning", "pipeline_lost", f"pipeline {name}: the driver of flow {flow['flow']} is not heard", href)


def _unread(snapshot: Snapshot) -> Iterator[Point]:
    for problem in snapshot.reading.problems[:5]:
        yield Point("warning", "unreadable", problem)
