"""The overview: health, rates, what needs attention."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from ottla.cli.failure import Failure
from ottla.console.attention import health_of, points_of
from ottla.console.cluster import Cluster
from ottla.console.console import Console
from ottla.console.endpoint import Answer, Call, Endpoint
from ottla.console.live import View, follow
from ottla.console.schema import INTEGER, NUMBER, OBJECT, STRING, by_name, document, listed, maybe, one_of
from ottla.console.sse import event_stream
from ottla.console.watch import Snapshot, lag_of, lag_s_of

_SHOWN = 10
_PUBLISHED = "__ottla_pipelines"

OVERVIEW = document(
    cluster_id=STRING,
    bootstrap_servers=STRING,
    controller_id=INTEGER,
    kind=maybe(STRING),
    as_of_ms=INTEGER,
    read_ms=INTEGER,
    complete={"type": "boolean"},
    brokers=document(up=INTEGER, expected=INTEGER),
    topics=INTEGER,
    partitions=INTEGER,
    groups=maybe(INTEGER),
    transactions=maybe(by_name(INTEGER)),
    records_per_s=maybe(NUMBER),
    log_bytes=maybe(INTEGER),
    health=one_of("ok", "warning", "bad"),
    attention=listed(
        document(level=one_of("bad", "warning", "note"), kind=STRING, text=STRING, href=maybe(STRING), count=INTEGER)
    ),
    rates=listed(document(at_ms=INTEGER, records_per_s=NUMBER)),
    top_topics=listed(document(topic=STRING, records_per_s=maybe(NUMBER), log_bytes=maybe(INTEGER))),
    top_groups=listed(document(group=STRING, lag=maybe(INTEGER), lag_s=maybe(NUMBER))),
)


def overview_document(cluster: Cluster, snapshot: Snapshot, pipelines: Sequence[Mapping[str, Any]] = ()) -> dict[str, Any]:
    reading = snapshot.reading
    known = {node.broker_id for node in reading.brokers}
    replicas = {
        broker
        for topic in reading.topics.values()
        for each in topic.partitions.values()
        for broker in (*each.replicas, *each.isr)
    }
    sizes = [node.log_bytes for node in reading.brokers]
    attention = points_of(snapshot, pipelines)
    busiest = sorted(snapshot.rates.items(), key=lambda pair: (-pair[1], pair[0]))[:_SHOWN]
    behind = sorted(
        ((lag, name) for name, progress in snapshot.groups.items() if (lag := lag_of(progress)) is not None),
        key=lambda pair: (-pair[0], pair[1]),
    )[:_SHOWN]
    transactions = reading.transactions
    return {
        "cluster_id": reading.cluster_id,
        "bootstrap_servers": cluster.connection.bootstrap_servers,
        "controller_id": reading.controller_id,
        "kind": None,
        "as_of_ms": snapshot.as_of_ms,
        "read_ms": round(snapshot.read_s * 1000),
        "complete": snapshot.complete,
        "brokers": {"up": len(known), "expected": len(known | replicas)},
        "topics": len(reading.topics),
        "partitions": sum(len(topic.partitions) for topic in reading.topics.values()),
        "groups": len(snapshot.groups) if snapshot.complete else None,
        "transactions": None if transactions is None else dict(Counter(each.state for each in transactions.by_id)),
        "records_per_s": round(sum(snapshot.rates.values()), 3) if snapshot.rates else None,
        "log_bytes": sum(size for size in sizes if size is not None) if any(size is not None for size in sizes) else None,
        "health": health_of(attention),
        "attention": [each.document() for each in attention],
        "rates": [{"at_ms": at_ms, "records_per_s": rate} for at_ms, rate in cluster.watch.rates],
        "top_topics": [
            {"topic": name, "records_per_s": rate, "log_bytes": leader_bytes(snapshot, name)} for name, rate in busiest
        ],
        "top_groups": [{"group": name, "lag": lag, "lag_s": lag_s_of(snapshot.groups[name])} for lag, name in behind],
    }


def leader_bytes(snapshot: Snapshot, topic: str) -> int | None:
    """The size of a topic without its further replicas."""
    found = snapshot.reading.topics.get(topic)
    sizes = [] if found is None else [each.log_bytes for each in found.partitions.values()]
    known = [size for size in sizes if size is not None]
    return sum(known) if sizes and len(known) == len(sizes) else None


async def _document(call: Call) -> dict[str, Any]:
    snapshot = await call.watch.first()
    pipelines: Sequence[Mapping[str, Any]] = ()
    if _PUBLISHED in snapshot.reading.topics:
        # Who may not read what pipelines publish sees the overview without them.
        with contextlib.suppress(Failure):
            pipelines = await call.blocking(call.published.documents)
    return overview_document(call.session.cluster, snapshot, pipelines)


async def get_overview(console: Console, call: Call) -> Answer:
    return await _document(call)


async def live_overview(console: Console, call: Call) -> Answer:
    async def view() -> View:
        return View(await _document(call))

    return event_stream(follow(call.watch, view))


ENDPOINTS = (
    Endpoint("GET", "/api/overview", "Health, rates, and what needs attention", get_overview, OVERVIEW),
    Endpoint("GET", "/api/live/overview", "The overview as it changes", live_overview, OBJECT, media_type="text/event-stream"),
)
