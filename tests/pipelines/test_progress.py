"""What people see of a running pipeline, from Spark's own documents (F80), without Spark."""

from __future__ import annotations

import io
import re
import zipfile
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console

from ottla.pipelines import progress, progress_metrics, progress_table, session
from ottla.pipelines.exactly_once import ExactlyOnceSink, Totals

PROGRESS: dict[str, Any] = {
    "name": "shop.revenue",
    "batchId": 7,
    "timestamp": "2026-01-01T00:00:00.000Z",
    "numInputRows": 100,
    "inputRowsPerSecond": 50.0,
    "processedRowsPerSecond": float("inf"),
    "durationMs": {"addBatch": 80, "walCommit": 10, "commitOffsets": 15, "queryPlanning": 5, "triggerExecution": 120},
    "eventTime": {"watermark": "2026-01-01T00:00:10.000Z"},
    "stateOperators": [{"numRowsTotal": 12, "memoryUsedBytes": 4096, "numRowsDroppedByWatermark": 3}, {"numRowsTotal": 30}],
    "sources": [
        {"endOffset": {"a": {"0": 10, "1": 5}, "#a": "id"}, "latestOffset": {"a": {"0": 14, "1": 5}, "#a": "id"}},
        {"endOffset": '{"b": {"0": 1}}', "latestOffset": '{"b": {"0": 4}}'},
        {"endOffset": 17, "latestOffset": 17},
    ],
}


def watched(told: list[dict[str, Any]] | None = None) -> progress.Watch:
    totals = Totals(batches=8, records=90, dead_letters=2, retries=1, transaction_ms=21.04, last_error="a worker was lost")
    sinks = cast("dict[str, ExactlyOnceSink]", {"revenue": SimpleNamespace(totals=totals)})
    return progress.Watch("shop.", sinks, told.append if told is not None else None)


def test_a_document_has_rates_lag_phases_and_what_the_sink_knows() -> None:
    told: list[dict[str, Any]] = []
    watch = watched(told)
    watch.hear(PROGRESS)
    watch.hear(PROGRESS)
    watch.hear({**PROGRESS, "name": "other.revenue"})
    assert len(told) == 1
    found = told[0]
    assert (found["flow"], found["batch"], found["lag"], found["state_rows"]) == ("revenue", 7, 7, 42)
    assert found["phases_ms"] == {"work": 80, "checkpoint": 25, "plan": 5}
    assert (found["rows_per_s"], found["processed_rows_per_s"]) == (50.0, 0.0)
    assert (found["records_out"], found["dead_letters"], found["transaction_ms"]) == (90, 2, 21.0)
    assert "lag 7, dead letters 2, late rows 3, last error: a worker was lost" in progress_table.line(found)


def test_late_rows_and_rows_that_do_not_meet_an_expectation_are_counted() -> None:
    """The document adds up the rows that the watermark drops: Spark tells those of a batch."""
    watch = watched()
    watch.sinks["revenue"].totals.unmet.update(positive=2, small=0)
    for batch in (7, 7, 8):
        watch.hear({**PROGRESS, "batchId": batch})
    found = watch.latest["revenue"]
    assert (found["late_rows"], found["expectations"]) == (6, {"positive": 2, "small": 0})
    assert "unmet positive 2, late rows 6" in progress_table.line(found)
    headers = [str(column.header) for column in progress_table.table("shop", ["revenue"], watch).columns]
    assert headers[-3:] == ["unmet", "late", "last error"]
    flow = {"pipeline": "shop", "flow": "revenue", "state": "running", "progress": found}
    samples = [
        (each.name, each.labels, each.value)
        for family in progress_metrics.Collector(lambda: [flow]).collect()
        for each in family.samples
    ]
    labels = {"pipeline": "shop", "flow": "revenue"}
    assert ("ottla_pipeline_unmet_total", {**labels, "expectation": "positive"}, 2) in samples
    assert ("ottla_pipeline_late_rows_total", labels, 6) in samples


def test_the_table_and_the_metrics_page_say_the_same() -> None:
    watch = watched()
    watch.hear(PROGRESS)
    console = Console(width=200, record=True, file=open("/dev/null", "w"))  # noqa: SIM115
    with console.file:
        console.print(progress_table.table("shop", ["revenue", "waiting"], watch))
        text = console.export_text()
    assert "00:00:10" in text
    assert "a worker was lost" in text
    narrow = Console(width=80, record=True, file=io.StringIO())
    narrow.print(progress_table.table("shop", ["revenue", "waiting"], watch, width=80))
    shown = narrow.export_text()
    # Fewer columns, but whole ones.
    assert {"flow", "revenue", "batch ms", "a worker was lost"} <= set(re.split(r"\s{2,}", shown.replace("\n", "  ")))
    assert shown.count("…") == 1
    flow = {"pipeline": "shop", "flow": "revenue", "state": "running", "progress": watch.latest["revenue"]}
    samples = {
        (sample.name, sample.labels.get("phase")): sample.value
        for family in progress_metrics.Collector(lambda: [flow]).collect()
        for sample in family.samples
    }
    assert samples["ottla_pipeline_lag", None] == 7
    assert samples["ottla_pipeline_records_out_total", None] == 90
    assert samples["ottla_pipeline_phase_ms", "work"] == 80
    assert samples["ottla_pipeline_watermark_seconds", None] == 1767225610
    assert samples["ottla_pipeline_up", None] == 1
    assert (samples["ottla_pipeline_rows_in_total", None], samples["ottla_pipeline_state_bytes", None]) == (100, 4096)
    assert samples["ottla_pipeline_checkpoint_age_seconds", None] > 0


def test_a_flow_without_a_batch_is_only_up_or_not() -> None:
    flow = {"pipeline": "shop", "flow": "revenue", "state": "starting", "progress": None}
    families = list(progress_metrics.Collector(lambda: [flow]).collect())
    assert [(sample.name, sample.value) for family in families for sample in family.samples] == [("ottla_pipeline_up", 0.0)]


def test_the_package_that_is_shipped_holds_the_sources() -> None:
    with zipfile.ZipFile(session.package()) as archive:
        names = set(archive.namelist())
    assert {"ottla/pipelines/producing.py", "ottla/records/column_writer.py", "pyspark_ottla/__init__.py"} <= names
    assert not [name for name in names if name.endswith((".so", ".pyc"))]


def test_what_spark_still_has_to_tell_is_heard_first() -> None:
    """A run that ended shows its last batch too: Spark tells from a queue, after the batch."""
    heard: list[str] = []

    class Spark:
        def __getattr__(self, name: str) -> object:
            return self

        def __call__(self) -> object:
            return self

        def waitUntilEmpty(self, timeout_ms: int) -> None:
            heard.append("the rest")
            raise RuntimeError("a queue that stays full takes nothing away but a line")

        def removeListener(self, listener: object) -> None:
            heard.append(f"{listener} goes")

    progress.unlisten(cast(Any, Spark()), "ours")
    assert heard == ["the rest", "ours goes"]
