"""The progress of flows as metrics for Prometheus: the page of a run, and a collector for whoever has flow documents."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any

from ottla.pipelines.failure import PipelineError
from ottla.pipelines.published.documents import RUNNING

FlowDocuments = Callable[[], Iterable[Mapping[str, Any]]]
"""The documents of flows, as they are published."""


def serve_metrics(address: str, flows: FlowDocuments) -> None:
    """Serve metrics for Prometheus at host:port until the process ends."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise PipelineError("metrics need prometheus-client, which is not installed", hint="pip install 'ottla[spark]'") from None
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise PipelineError(f"metrics {address!r} is not an address", hint="write host:port, as in 127.0.0.1:9404")
    registry = CollectorRegistry()
    registry.register(Collector(flows))
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
    "state_bytes": "Memory of state",
}
_COUNTERS = {
    "rows_in": "Records read",
    "records_out": "Records written",
    "dead_letters": "Records that did not parse or did not meet an expectation",
    "late_rows": "Rows that Spark dropped because they were behind the watermark",
    "batches": "Batches written",
    "run_again": "Batches that were run again",
}
_LABELS = ("pipeline", "flow")


class Collector:
    """The documents as Prometheus metrics, made at each scrape."""

    def __init__(self, flows: FlowDocuments) -> None:
        self._flows = flows

    def collect(self) -> Iterator[Any]:
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        documents = [((each["pipeline"], each["flow"]), each) for each in self._flows()]
        up = GaugeMetricFamily("ottla_pipeline_up", "1 while the flow runs", labels=_LABELS)
        for labels, document in documents:
            up.add_metric(labels, float(document["state"] == RUNNING))
        yield up
        found = [(labels, document["progress"]) for labels, document in documents if document["progress"] is not None]
        for key, help_text in _GAUGES.items():
            gauge = GaugeMetricFamily(f"ottla_pipeline_{key}", help_text, labels=_LABELS)
            for labels, progress in found:
                if progress.get(key) is not None:
                    gauge.add_metric(labels, progress[key])
            yield gauge
        for key, help_text in _COUNTERS.items():
            counter = CounterMetricFamily(f"ottla_pipeline_{key}", help_text, labels=_LABELS)
            for labels, progress in found:
                if progress.get(key) is not None:
                    counter.add_metric(labels, progress[key])
            yield counter
        unmet = CounterMetricFamily(
            "ottla_pipeline_unmet", "Rows that did not meet an expectation", labels=[*_LABELS, "expectation"]
        )
        for labels, progress in found:
            for name, count in (progress.get("expectations") or {}).items():
                unmet.add_metric([*labels, name], count)
        yield unmet
        phase = GaugeMetricFamily("ottla_pipeline_phase_ms", "Of the last batch, by phase", labels=[*_LABELS, "phase"])
        watermark = GaugeMetricFamily("ottla_pipeline_watermark_seconds", "Event time that is complete", labels=_LABELS)
        age = GaugeMetricFamily("ottla_pipeline_checkpoint_age_seconds", "Time since the last batch was recorded", labels=_LABELS)
        for labels, progress in found:
            for name, took_ms in progress["phases_ms"].items():
                phase.add_metric([*labels, name], took_ms)
            if progress["watermark"]:
                watermark.add_metric(labels, _seconds(progress["watermark"]))
            if progress["checkpoint_at"]:
                age.add_metric(labels, max(time.time() - _seconds(progress["checkpoint_at"]), 0.0))
        yield from (phase, watermark, age)


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
