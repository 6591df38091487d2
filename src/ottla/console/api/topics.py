"""The list of topics."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ottla.cli.dlq.letters import is_dead_letter_name
from ottla.console.api.overview import leader_bytes
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint, Param
from ottla.console.lists import PARAMS, Page, Window, list_schema, page
from ottla.console.live import View, follow
from ottla.console.schema import BOOLEAN, INTEGER, NUMBER, OBJECT, STRING, document, maybe
from ottla.console.sse import event_stream
from ottla.console.watch import Snapshot, records_of
from ottla.exporter.consumption import PartitionProgress
from ottla.exporter.reading import Partition, Topic

ROW = document(
    topic=STRING,
    internal=BOOLEAN,
    partitions=INTEGER,
    replication_factor=INTEGER,
    records=maybe(INTEGER),
    log_bytes=maybe(INTEGER),
    replica_bytes=maybe(INTEGER),
    cleanup_policy=maybe(STRING),
    under_replicated=INTEGER,
    offline=INTEGER,
    records_per_s=maybe(NUMBER),
    groups=maybe(INTEGER),
    lag=maybe(INTEGER),
    lag_s=maybe(NUMBER),
    dead_letter=BOOLEAN,
)
_COLUMNS = {
    "name": "topic",
    "partitions": "partitions",
    "replication": "replication_factor",
    "records": "records",
    "bytes": "log_bytes",
    "rate": "records_per_s",
    "under_replicated": "under_replicated",
    "groups": "groups",
    "lag": "lag",
}


def is_internal(topic: Topic) -> bool:
    return topic.is_internal or topic.name.startswith("__")


def topic_row(snapshot: Snapshot, topic: Topic) -> dict[str, Any]:
    parts = topic.partitions.values()
    readers = [progress.topics[topic.name] for progress in snapshot.by_topic.get(topic.name, ())]
    return {
        "topic": topic.name,
        "internal": is_internal(topic),
        "partitions": len(parts),
        "replication_factor": replication_of(topic),
        "records": records_of(topic),
        "log_bytes": leader_bytes(snapshot, topic.name),
        "replica_bytes": topic.replica_bytes,
        "cleanup_policy": topic.cleanup_policy,
        "under_replicated": sum(is_short(each) for each in parts),
        "offline": sum(each.leader_id < 0 for each in parts),
        "records_per_s": snapshot.rates.get(topic.name),
        "groups": len(readers) if snapshot.complete else None,
        "lag": _sum_lag(readers) if snapshot.complete else None,
        "lag_s": max((each.lag_s for reader in readers for each in reader if each.lag_s is not None), default=None),
        "dead_letter": is_dead_letter_name(topic.name),
    }


def replication_of(topic: Topic) -> int:
    return max((len(each.replicas) for each in topic.partitions.values()), default=0)


def is_short(partition: Partition) -> bool:
    """Whether it is under-replicated."""
    return partition.leader_id >= 0 and len(partition.isr) < len(partition.replicas)


def _sum_lag(readers: Sequence[Sequence[PartitionProgress]]) -> int | None:
    lags = [each.lag for reader in readers for each in reader if each.lag is not None and each.lag >= 0]
    return sum(lags) if lags else None


def _page(call: Call, snapshot: Snapshot) -> Page[dict[str, Any]]:
    window = Window.of(call, _COLUMNS)
    internal, state = call.flag("internal"), call.choice("state", ("any", "under_replicated", "offline", "internal"))
    shown = [
        topic
        for topic in snapshot.reading.topics.values()
        if internal or state == "internal" or window.names or not is_internal(topic)
    ]
    # Only the rows of the window are made, unless the order needs all.
    if window.sort == "name":
        found = page(shown, window, lambda topic: topic.name, lambda topic: None, lambda topic: _in_state(topic, state))
        return Page(found.total, found.matched, [topic_row(snapshot, topic) for topic in found.items])
    rows = [topic_row(snapshot, topic) for topic in shown if _in_state(topic, state)]
    found_rows = page(rows, window, lambda row: str(row["topic"]), lambda row: row[_COLUMNS[window.sort]])
    return Page(len(shown), found_rows.matched, found_rows.items)


def _in_state(topic: Topic, state: str) -> bool:
    if state == "under_replicated":
        return any(is_short(each) for each in topic.partitions.values())
    if state == "offline":
        return any(each.leader_id < 0 for each in topic.partitions.values())
    return state != "internal" or is_internal(topic)


def _head(snapshot: Snapshot, found: Page[dict[str, Any]]) -> dict[str, Any]:
    return {"total": found.total, "matched": found.matched, "as_of_ms": snapshot.as_of_ms, "complete": snapshot.complete}


async def list_topics(console: Console, call: Call) -> Answer:
    call.watch.look()
    snapshot = await call.watch.first()
    found = _page(call, snapshot)
    return {**_head(snapshot, found), "rows": list(found.items)}


async def live_topics(console: Console, call: Call) -> Answer:
    _page(call, await call.watch.first())  # a wrong parameter is told before the stream begins

    async def view() -> View:
        snapshot = await call.watch.first()
        found = _page(call, snapshot)
        return View(_head(snapshot, found), {str(row["topic"]): row for row in found.items})

    return event_stream(follow(call.watch, view))


_LIST_PARAMS = (
    *PARAMS,
    Param("internal", "1: internal topics too", BOOLEAN),
    Param("state", "under_replicated, offline or internal", STRING),
)

ENDPOINTS = (
    Endpoint("GET", "/api/topics", "A window of the list of topics", list_topics, list_schema(ROW), params=_LIST_PARAMS),
    Endpoint(
        "GET",
        "/api/live/topics",
        "A window of the list as it changes",
        live_topics,
        OBJECT,
        params=_LIST_PARAMS,
        media_type="text/event-stream",
    ),
)
