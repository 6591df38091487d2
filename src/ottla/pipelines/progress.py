"""The progress of a running pipeline: Spark's progress events and the sink's counts, as one document for each flow."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from ottla.pipelines.checkpoint import offsets_of
from ottla.pipelines.exactly_once import ExactlyOnceSink
from ottla.pipelines.spark_jvm import wait_for_listeners

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LISTENER_TIMEOUT_MS = 10_000
# Spark's names for the phases of a batch, and ours. addBatch includes the sink's transaction, which is shown apart too.
_PHASES = {
    "latestOffset": "offsets",
    "getBatch": "plan",
    "queryPlanning": "plan",
    "addBatch": "work",
    "walCommit": "checkpoint",
    "commitOffsets": "checkpoint",
    "commitBatch": "checkpoint",
}


def document(flow: str, progress: Mapping[str, Any], sink: ExactlyOnceSink | None) -> dict[str, Any]:
    """One flow's progress. Times are in milliseconds."""
    phases: dict[str, float] = {}
    durations = progress.get("durationMs") or {}
    for name, took_ms in durations.items():
        if name in _PHASES:
            phases[_PHASES[name]] = phases.get(_PHASES[name], 0) + took_ms
    totals = sink.totals if sink is not None else None
    lags = lag_by_topic(progress)
    states = progress.get("stateOperators") or []
    return {
        "flow": flow,
        "batch": progress.get("batchId"),
        "at": progress.get("timestamp"),
        "rows": progress.get("numInputRows") or 0,
        "rows_per_s": _rate(progress.get("inputRowsPerSecond")),
        "processed_rows_per_s": _rate(progress.get("processedRowsPerSecond")),
        "lag": sum(lags.values()) if lags else None,
        "lag_by_topic": lags,
        "batch_ms": durations.get("triggerExecution", 0),
        "checkpoint_at": _end_of_batch(progress),
        "phases_ms": phases,
        "transaction_ms": round(totals.transaction_ms, 1) if totals else None,
        "watermark": (progress.get("eventTime") or {}).get("watermark"),
        "state_rows": sum(operator.get("numRowsTotal") or 0 for operator in states),
        "late_rows": sum(operator.get("numRowsDroppedByWatermark") or 0 for operator in states),
        "state_bytes": sum(operator.get("memoryUsedBytes") or 0 for operator in states),
        "records_out": totals.records if totals else 0,
        "dead_letters": totals.dead_letters if totals else 0,
        "expectations": dict(totals.unmet) if totals else {},
        "batches": totals.batches if totals else 0,
        "run_again": totals.retries if totals else 0,
        "last_error": totals.last_error if totals else None,
    }


def lag_by_topic(progress: Mapping[str, Any]) -> dict[str, int]:
    """The number of records not read yet. Empty if no source is a topic."""
    lags: dict[str, int] = {}
    for source in progress.get("sources") or []:
        end, latest = (offsets_of(_text(source.get(name))) for name in ("endOffset", "latestOffset"))
        for where, offset in latest.items():
            lags[where.topic] = lags.get(where.topic, 0) + max(offset - end.get(where, offset), 0)
    return lags


def _end_of_batch(progress: Mapping[str, Any]) -> str | None:
    """When Spark recorded the batch in the checkpoint; None if this trigger ran no batch."""
    durations = progress.get("durationMs") or {}
    if not durations.get("addBatch") or not progress.get("timestamp"):
        return None
    end = datetime.fromisoformat(progress["timestamp"]) + timedelta(milliseconds=durations.get("triggerExecution", 0))
    return end.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _text(offset: Any) -> str:
    return offset if isinstance(offset, str) else json.dumps(offset)


def _rate(value: Any) -> float:
    return round(float(value), 1) if isinstance(value, int | float) and value == value and value != float("inf") else 0.0


@dataclass
class Watch:
    """The latest document of each flow. `tell` is called with the first document of each batch."""

    prefix: str
    sinks: Mapping[str, ExactlyOnceSink]
    tell: Callable[[dict[str, Any]], None] | None = None
    latest: dict[str, dict[str, Any]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _told: dict[str, int] = field(default_factory=dict)

    def hear(self, progress: Mapping[str, Any]) -> None:
        name = str(progress.get("name") or "")
        if not name.startswith(self.prefix):
            return
        flow = name[len(self.prefix) :]
        if "." in flow:
            return  # of a pipeline whose name begins with this one's
        found = document(flow, progress, self.sinks.get(flow))
        with self._lock:
            before = self.latest.get(flow)
            new = self._told.get(flow) != found["batch"] and found["batch_ms"] > 0 and found["checkpoint_at"] is not None
            if new:
                self._told[flow] = found["batch"]
            _carry(before, found, found["rows"] if new else 0, found["late_rows"] if new else 0)
            self.latest[flow] = found
        if self.tell is not None and new:
            self.tell(found)


def _carry(before: Mapping[str, Any] | None, found: dict[str, Any], new_rows: int, new_late: int) -> None:
    """Add what the document before knew: Spark's progress of a trigger without a batch says less."""
    found["rows_in"] = new_rows + (before["rows_in"] if before is not None else 0)
    found["late_rows"] = new_late + (before["late_rows"] if before is not None else 0)
    if before is None:
        return
    if found["checkpoint_at"] is None:
        found["checkpoint_at"] = before["checkpoint_at"]
    if not found["rows"] and found["watermark"] is None:
        found["watermark"] = before["watermark"]


def listen(spark: SparkSession, watch: Watch) -> Any:
    """Pass all progress events of Spark to `watch`. Returns the listener, for `unlisten`."""
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
    """Remove the listener after it has heard all queued events. Errors are ignored: they must not hide how the queries ended."""
    with suppress(Exception):
        wait_for_listeners(spark, _LISTENER_TIMEOUT_MS)
    with suppress(Exception):
        spark.streams.removeListener(listener)
