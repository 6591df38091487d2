"""Backfills: a stretch of time again, beside the live pipeline (F79)."""

from __future__ import annotations

import time
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from ottla import pipelines as p
from ottla.pipelines import PipelineError, backfill, graph, loading, project, running
from ottla.pipelines.data_source.read_limits import ARE_KNOWN
from ottla.pipelines.exactly_once import ExactlyOnceSink
from ottla.pipelines.project import TimeRange
from ottla.pipelines.reset import reset
from tests.kit.wait import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.pipelines.conftest import Shop

MINUTE_MS = 60_000
BEGAN_MS = 1_767_225_600_000
HOUR_AGO_MS = int(time.time()) // 60 * MINUTE_MS - 60 * MINUTE_MS
"""Within the retention of the topics."""
PACE = {"maxOffsetsPerTrigger": 10} if ARE_KNOWN else {}
PIPELINE = """
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long"), name="orders", options={pace})
filled = p.sql(orders, to=p.sink("{out}"), name="filled", query="SELECT * FROM orders")
p.sql(filled, to=p.sink("{out}.more"), name="more", query="SELECT id FROM filled")
"""


def produced(shop: Shop, source: str) -> None:
    """Ten records a minute, for five minutes."""
    for minute in range(5):
        for number in range(10):
            shop.produce(source, [{"id": 10 * minute + number}], timestamp=HOUR_AGO_MS + minute * MINUTE_MS)


def test_names_and_flows_of_a_backfill(tmp_path: Path) -> None:
    file = tmp_path / "shop.py"
    file.write_text(PIPELINE.format(pace=PACE, source="in", out="out"))
    plan = graph.plan(loading.load(file))
    live = project.read(file)
    own = backfill.project_of(live, TimeRange(BEGAN_MS, BEGAN_MS + 1_500))
    assert own.group_id("filled") == "shop.backfill-20260101T000000-20260101T000001.500.filled"
    assert own.storage == f"{live.storage}/backfill-20260101T000000-20260101T000001.500"
    with pytest.raises(PipelineError, match="there is nothing between 2026-01-01T00:00:00"):
        backfill.project_of(live, TimeRange(BEGAN_MS, BEGAN_MS))
    chosen, left_out = backfill.plan_of(plan, [])
    assert ([flow.name for flow in chosen.queries], [flow.name for flow in left_out]) == (["filled"], ["more"])
    with pytest.raises(PipelineError, match="'more' reads the topic of another flow"):
        backfill.plan_of(plan, ["more"])
    whole = p.sql(p.source("in", p.json("id long")), query="SELECT count(*)", to=p.sink("out"), output_mode="complete")
    with pytest.raises(PipelineError, match="output mode complete"):
        backfill.plan_of(graph.plan([whole]), [])


def test_a_backfill_writes_a_stretch_once_beside_the_live_pipeline_also_if_it_is_killed(
    shop: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, out = shop.topic("orders"), shop.topic("out")
    shop.topic("out.more")
    file = shop.pipeline(PIPELINE.format(pace=PACE, source=source, out=out))
    produced(shop, source)
    stretch = TimeRange(HOUR_AGO_MS + MINUTE_MS, HOUR_AGO_MS + 4 * MINUTE_MS)
    live = project.override(
        project.read(file), bootstrap_servers=shop.broker.bootstrap_servers, storage=str(shop.folder / "storage")
    )
    plan, _ = backfill.plan_of(graph.plan(loading.load(file)), [])

    class Died(Exception):
        pass

    attempt, tried = ExactlyOnceSink._attempt, []

    # The stretch is three batches, or one where Spark has no limits.
    last = 2 if ARE_KNOWN else 1

    def dies(self: ExactlyOnceSink, *arguments: Any) -> None:
        attempt(self, *arguments)
        tried.append(self.group_id)
        if "backfill" in self.group_id and sum("backfill" in each for each in tried) == last:
            raise Died("after EndTxn")

    def run() -> running.PipelineRun:
        with running.PipelineRun(shop.spark, backfill.project_of(live, stretch), plan) as flows:
            flows.start()
            until(lambda: not flows.running, "the backfill ends", 300, every_s=0, meanwhile=lambda: flows.wait(1))
        return flows

    with shop.flows(file, once=False) as flows:
        flows.start()
        with monkeypatch.context() as patch:
            patch.setattr(ExactlyOnceSink, "_attempt", dies)
            with pytest.raises(PipelineError):
                run()
        assert run().sinks["filled"].totals.records == (10 if ARE_KNOWN else 0)
        assert run().sinks["filled"].totals.records == 0
        live_sink = flows.sinks["more"].totals
        until(
            lambda: live_sink.records >= 80,
            "the live flow passes on what the backfill wrote",
            120,
            every_s=0,
            meanwhile=lambda: flows.wait(0.5),
        )
    twice = range(10, 40)
    assert Counter(value["id"] for value in shop.values(out)) == Counter([*range(50), *twice])
    assert Counter(value["id"] for value in shop.values(f"{out}.more")) == Counter([*range(50), *twice])


def test_reset_to_a_time_starts_there(shop: Shop) -> None:
    source, out = shop.topic("orders"), shop.topic("out")
    file = shop.pipeline(PIPELINE.format(pace=PACE, source=source, out=out).rsplit("\n", 2)[0])
    produced(shop, source)
    settings = project.override(
        project.read(file), bootstrap_servers=shop.broker.bootstrap_servers, storage=str(shop.folder / "storage")
    )
    plan = graph.plan(loading.load(file))
    done = reset(settings, plan, ["filled"], HOUR_AGO_MS + 3 * MINUTE_MS)
    assert done[-1] == f"filled: the next run starts at the records of {backfill.time_text(HOUR_AGO_MS + 3 * MINUTE_MS)}"
    shop.run(file)
    assert [value["id"] for value in shop.values(out)] == list(range(30, 50))
