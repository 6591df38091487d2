"""What the console counts of itself, and how Prometheus reads it at `/metrics`. No name of the cluster is in it."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from ottla.metrics.exposition import exposition
from ottla.metrics.family import Family, Kind, Metric, family, single

if TYPE_CHECKING:
    from ottla.console.console import Console

_C, _G = Kind.COUNTER, Kind.GAUGE
METRICS: Final = {
    row.name: row
    for row in (
        Metric("ottla_console_requests_total", _C, ("method", "status"), "Answered requests."),
        Metric("ottla_console_request_seconds_total", _C, (), "Time until answers began, of all requests."),
        Metric("ottla_console_event_streams", _G, (), "Open streams of server-sent events."),
        Metric("ottla_console_sessions", _G, (), "Sessions of users who are logged in."),
        Metric("ottla_console_searches", _G, (), "Searches, traces, files and live views that read records now."),
        Metric("ottla_console_searches_total", _C, (), "The same, begun."),
        Metric("ottla_console_scanned_records_total", _C, (), "Records that they have read."),
        Metric("ottla_console_scanned_bytes_total", _C, (), "Bytes of these records, decompressed."),
        Metric("ottla_console_cluster_up", _G, (), "1 if the last round of the console's own user was answered, else 0."),
        Metric("ottla_console_round_seconds", _G, (), "How long the last complete round of the console's own user took."),
    )
}


class Measuring:
    """Counts requests, as middleware."""

    def __init__(self, app: ASGIApp, counts: Counts) -> None:
        self._app = app
        self._counts = counts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        counts, began_s = self._counts, time.monotonic()
        is_stream = False

        async def counted(message: Message) -> None:
            nonlocal is_stream
            if message["type"] == "http.response.start":
                counts.requests[scope["method"], message["status"]] += 1
                counts.request_s += time.monotonic() - began_s
                is_stream = Headers(raw=message["headers"]).get("content-type", "").startswith("text/event-stream")
                counts.event_streams += is_stream
            await send(message)

        try:
            await self._app(scope, receive, counted)
        finally:
            counts.event_streams -= is_stream


class Counts:
    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.request_s = 0.0
        self.event_streams = 0


def page(console: Console) -> str:
    from ottla.broker.monitoring.process import process_families

    return "".join(exposition([*_families(console), *process_families()]))


def _families(console: Console) -> Iterator[Family]:
    counts, streams, watch = console.counts, console.streams, console.cluster.watch
    yield family(METRICS["ottla_console_requests_total"], sorted(counts.requests.items()))
    values: dict[str, float | None] = {
        "request_seconds_total": round(counts.request_s, 6),
        "event_streams": counts.event_streams,
        "sessions": console.access.sessions,
        "searches": streams.running,
        "searches_total": streams.begun,
        "scanned_records_total": streams.scanned.records,
        "scanned_bytes_total": streams.scanned.size_bytes,
        "cluster_up": int(watch.trouble is None and watch.snapshot is not None),
        "round_seconds": watch.snapshot.read_s if watch.snapshot is not None and watch.snapshot.complete else None,
    }
    for name, value in values.items():
        if value is not None:
            yield single(METRICS[f"ottla_console_{name}"], value)
