"""How a running pipeline is doing: Spark's progress and the sink's own counts, as one document for each flow.

Owns: the listener, the document, the live table, the Prometheus page. Decides nothing.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any

from ottla.pipelines.checkpoint import offsets_of
from ottla.pipelines.exactly_once import ExactlyOnce
from ottla.pipelines.failure import PipelineError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from rich.table import Table

_HEAR_TIMEOUT_MS = 10_000
# Spark's names for the parts of a batch, and ours. What the sink's transaction costs is inside addBatch, and shown beside it.
_PHASES = {
    "latestOffset": "offsets",
    "getBatch": "plan",
    "queryPlanning": "plan",
    "addBatch": "work",
    "walCommit": "checkpoint",
    "commitOffsets": "checkpoint",
    "commitBatch": "checkpoint",
}


def document(flow: str, progress: Mapping[str, Any], sink: ExactlyOnce | None) -> dict[str, Any]:
    """One flow's progress. Times are in milliseconds."""
    phases: dict[str, float] = {}
    durations = progress.get("durationMs") or {}
    for name, took_ms in durations.items():
        if name in _PHASES:
            phases[_PHASES[name]] = phases.get(_PHASES[name], 0) + took_ms
    totals = sink.totals if sink is not None else None
    return {
        "flow": flow,
        "batch": progress.get("batchId"),
        "at": progress.get("timestamp"),
        "rows": progress.get("numInputRows") or 0,
        "rows_per_s": _rate(progress.get("inputRowsPerSecond")),
        "processed_rows_per_s": _rate(progress.get("processedRowsPerSecond")),
        "lag": lag_of(progress),
        "batch_ms": durations.get("triggerExecution", 0),
        "phases_ms": phases,
        "transaction_ms": round(totals.transaction_ms, 1) if totals else None,
        "watermark": (progress.get("eventTime") or {}).get("watermark"),
        "state_rows": sum(operator.get("numRowsTotal") or 0 for operator in progress.get("stateOperators") or []),
        "records_out": totals.records if totals else 0,
        "dead_letters": totals.dead_letters if totals else 0,
        "batches": totals.batches if totals else 0,
        "run_again": totals.again if totals else 0,
        "last_error": totals.last_error if totals else None,
    }


def lag_of(progress: Mapping[str, Any]) -> int | None:
    """Records that are there and not read yet; None where no source is a topic."""
    total: int | None = None
    for source in progress.get("sources") or []:
        end, latest = (offsets_of(_text(source.get(name))) for name in ("endOffset", "latestOffset"))
        if latest:
            total = (total or 0) + sum(max(offset - end.get(where, offset), 0) for where, offset in latest.items())
    return total


def _text(offset: Any) -> str:
    return offset if isinstance(offset, str) else json.dumps(offset)


def _rate(value: Any) -> float:
    return round(float(value), 1) if isinstance(value, int | float) and value == value and value != float("inf") else 0.0


@dataclass
class Watch:
    """The newest document of each flow. `tell`, if given, hears of every one that is about a batch."""

    prefix: str
    sinks: Mapping[str, ExactlyOnce]
    tell: Callable[[dict[str, Any]], None] | None = None
    latest: dict[str, dict[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _told: dict[str, int] = field(default_factory=dict)

    def hear(self, progress: Mapping[str, Any]) -> None:
        name = str(progress.get("name") or "")
        if not name.startswith(self.prefix):
            return
        flow = name[len(self.prefix) :]
        found = document(flow, progress, self.sinks.get(flow))
        with self._lock:
            before = self.latest.get(flow)
            if before is not None and not found["rows"] and found["watermark"] is None:
                found["watermark"] = before["watermark"]
            self.latest[flow] = found
            new = self._told.get(flow) != found["batch"] and found["batch_ms"] > 0 and bool(found["phases_ms"].get("work"))
            if new:
                self._told[flow] = found["batch"]
        if self.tell is not None and new:
            self.tell(found)


def listen(spark: SparkSession, watch: Watch) -> Any:
    """Have Spark tell `watch` of every progress; what is returned is for `spark.streams.removeListener`."""
    from pyspark.sql.streaming.listener import StreamingQueryListener

    class Listener(StreamingQueryListener):
        def onQueryStarted(self, event: Any) -> None:
            pass

        def onQueryProgress(self, event: Any) -> None:
            watch.hear(json.loads(event.progress.json))

        def onQueryIdle(self, event: Any) -> None:
            pass

        def onQueryTerminated(self, event: Any) -> None:
            pass

    listener = Listener()
    spark.streams.addListener(listener)
    return listener


def unlisten(spark: SparkSession, listener: Any) -> None:
    """Spark tells in a queue of its own: what the last batches were is heard before nobody listens any more."""
    sc: Any = spark.sparkContext._jsc
    # It is a matter of the screen; whatever goes wrong here must not hide how the queries ended.
    with suppress(Exception):
        sc.sc().listenerBus().waitUntilEmpty(_HEAR_TIMEOUT_MS)
    with suppress(Exception):
        spark.streams.removeListener(listener)


def table(name: str, flows: list[str], watch: Watch, note: str = "", width: int = 200) -> Table:
    """All flows, live. A narrow terminal gets fewer columns, not all of them unreadable."""
    rows = [_cells(flow, watch.latest.get(flow)) for flow in flows]
    # What no flow has is not shown: state, a watermark, dead letters, an error.
    columns = [column for column in rows[0] if column in _ALWAYS or any(row[column] for row in rows)]
    for less in ((), *_LESS):
        columns = [column for column in columns if column not in less]
        widths = [max(len(column), *(len(row[column]) for row in rows)) for column in columns]
        if 1 + sum(min(each, _WIDEST) + _GAP for each in widths) <= width:
            break
    from rich import box
    from rich.table import Table

    view = Table(title=f"pipeline {name}", caption=note or None, title_justify="left", caption_justify="left")
    view.box, view.padding = box.SIMPLE_HEAD, (0, 1, 0, 0)
    for column in columns:
        words = column in ("flow", "watermark", "last error")
        view.add_column(column, justify="left" if words else "right", no_wrap=column != "last error", overflow="fold")
    for row in rows:
        view.add_row(*(row[column] for column in columns))
    return view


_ALWAYS = ("flow", "batch", "in/s", "out", "lag", "batch ms", "offsets", "plan", "work", "txn", "checkpoint")
_GAP, _WIDEST = 2, 30
# What is left out first where there is not enough room.
_LESS = (("offsets", "plan", "checkpoint"), ("work", "txn"), ("dead",), ("watermark",))


def _cells(flow: str, found: Mapping[str, Any] | None) -> dict[str, str]:
    if found is None:
        return {"flow": flow, "batch": "…", **dict.fromkeys((*_ALWAYS[2:], "state", "watermark", "dead", "last error"), "")}
    phases = found["phases_ms"]
    return {
        "flow": flow,
        "batch": str(found["batch"]),
        "in/s": f"{found['rows_per_s']:,.0f}",
        "out": f"{found['records_out']:,}",
        "lag": "" if found["lag"] is None else f"{found['lag']:,}",
        "batch ms": f"{found['batch_ms']:,}",
        "offsets": f"{phases.get('offsets', 0):,.0f}",
        "plan": f"{phases.get('plan', 0):,.0f}",
        "work": f"{phases.get('work', 0):,.0f}",
        "txn": "" if found["transaction_ms"] is None else f"{found['transaction_ms']:,.0f}",
        "checkpoint": f"{phases.get('checkpoint', 0):,.0f}",
        "state": f"{found['state_rows']:,}" if found["state_rows"] else "",
        "watermark": _clock(found["watermark"]),
        "dead": f"{found['dead_letters']:,}" if found["dead_letters"] else "",
        "last error": (found["last_error"] or "")[:80],
    }


def line(found: Mapping[str, Any]) -> str:
    """One batch, for a log."""
    parts = [f"{found['flow']}: batch {found['batch']}, {found['rows']:,} rows in {found['batch_ms']:,} ms"]
    if found["lag"] is not None:
        parts.append(f"lag {found['lag']:,}")
    if found["dead_letters"]:
        parts.append(f"dead letters {found['dead_letters']:,}")
    if found["last_error"]:
        parts.append(f"last error: {found['last_error']}")
    return ", ".join(parts)


def _clock(watermark: str | None) -> str:
    return "" if not watermark or watermark.startswith("1970") else watermark.replace("T", " ")[:19]


def serve_metrics(address: str, name: str, watch: Watch) -> None:
    """A page for Prometheus at host:port, for as long as the process lives."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise PipelineError("metrics need prometheus-client", hint="pip install 'ottla[spark]'") from None
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise PipelineError(f"metrics {address!r} is no address", hint="write it as host:port, 127.0.0.1:9404")
    registry = CollectorRegistry()
    registry.register(Collector(name, watch))
    try:
        start_http_server(int(port), host or "127.0.0.1", registry)
    except OSError as error:
        raise PipelineError(f"metrics {address}: {error.strerror or error}") from None


_GAUGES = {
    "lag": "Records that are there and not read yet",
    "rows_per_s": "Records read a second, in the last batch",
    "batch_ms": "Duration of the last batch",
    "transaction_ms": "Of it, the sink's transaction",
    "state_rows": "Rows of state",
}
_COUNTERS = {
    "records_out": "Records written",
    "dead_letters": "Records that did not parse",
    "batches": "Batches written",
    "run_again": "Batches that were run again",
}


class Collector:
    """The documents in Prometheus' words, made when somebody asks."""

    def __init__(self, name: str, watch: Watch) -> None:
        self._name, self._watch = name, watch

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        documents = list(self._watch.latest.items())
        labels = ["pipeline", "flow"]
        for key, help_text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"ottla_pipeline_{key}", help_text, labels=labels)
            for flow, found in documents:
                if found[key] is not None:
                    gauge.add_metric([self._name, flow], found[key])
            yield gauge
        for key, help_text in _COUNTERS.items():
            counter = CounterMetricFamily(f"ottla_pipeline_{key}", help_text, labels=labels)
            for flow, found in documents:
                counter.add_metric([self._name, flow], found[key])
            yield counter
        phase = GaugeMetricFamily("ottla_pipeline_phase_ms", "Of the last batch, by phase", labels=[*labels, "phase"])
        watermark = GaugeMetricFamily("ottla_pipeline_watermark_seconds", "Event time that is complete", labels=labels)
        for flow, found in documents:
            for name, took_ms in found["phases_ms"].items():
                phase.add_metric([self._name, flow, name], took_ms)
            if found["watermark"]:
                watermark.add_metric([self._name, flow], datetime.fromisoformat(found["watermark"]).timestamp())
        yield phase
        yield watermark
