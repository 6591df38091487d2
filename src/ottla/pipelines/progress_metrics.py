"""The progress of flows as a page for Prometheus."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from ottla.pipelines.failure import PipelineError
from ottla.pipelines.progress import Watch


def serve_metrics(address: str, name: str, watch: Watch) -> None:
    """Serve metrics for Prometheus at host:port until the process ends."""
    try:
        from prometheus_client import CollectorRegistry, start_http_server
    except ImportError:
        raise PipelineError("metrics need prometheus-client, which is not installed", hint="pip install 'ottla[spark]'") from None
    host, _, port = address.rpartition(":")
    if not port.isdecimal() or int(port) > 65535:
        raise PipelineError(f"metrics {address!r} is not an address", hint="write host:port, as in 127.0.0.1:9404")
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
    """The latest documents as Prometheus metrics, made at each scrape."""

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
