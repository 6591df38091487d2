"""Tests of flows as users write them: given rows, real streaming, no broker (F145)."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

import ottla.testing
from ottla import pipelines as p
from ottla.cli.app import app
from ottla.pipelines import trial
from ottla.pipelines.graph import plan

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ORDERS = p.source("orders", p.json("id long, customer string, amount double, at timestamp"), dead_letter="orders.dlq")


def second(number: int, minute: int = 0) -> datetime:
    return datetime(2026, 1, 1, 0, minute, number, tzinfo=UTC)


def test_the_kit_loads_no_spark_before_it_is_used() -> None:
    check = "import sys, ottla.testing.plugin; print('pyspark' in sys.modules, 'ottla.pipelines' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == "False False"


def test_rows_and_dead_letters_of_a_flow(spark: SparkSession, ottla_spark: SparkSession) -> None:
    @p.flow(ORDERS, to=p.jdbc("jdbc:postgresql://127.0.0.1/shop", "orders"))
    @p.expect("positive", "amount > 0", on_fail="dead_letter")
    @p.expect("known", "customer IS NOT NULL")
    def current(orders: DataFrame) -> DataFrame:
        return orders.select("id", "customer", "amount")

    given = [{"id": 1, "customer": "ada", "amount": -1.0}, {"id": 2, "amount": 5}, "{nonsense", None]
    rows = ottla.testing.run_flow(current, {"orders": given})
    assert rows == [{"id": 2, "customer": None, "amount": 5.0}]
    assert [(each.reason, each.record, each.expectation) for each in rows.dead_letters] == [
        ("the value is no JSON", "{nonsense", None),
        ("positive", given[0], "amount > 0"),
        ("positive", None, "amount > 0"),
    ]
    assert rows.unmet == {"positive": 2, "known": 2}


def test_windows_close_when_the_test_says_so(spark: SparkSession) -> None:
    @p.flow(ORDERS, to=p.sink("revenue", key="customer"))
    def revenue(orders: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        windows = orders.withWatermark("at", "10 seconds").groupBy(F.window("at", "10 seconds"), "customer")
        return windows.agg(F.sum("amount").alias("total"))

    first = [{"customer": "ada", "amount": 1.0, "at": second(1)}, {"customer": "ada", "amount": 2.0, "at": second(2)}]
    assert ottla.testing.run_flow(revenue, {"orders": first}) == []
    rows = ottla.testing.run_flow(revenue, {"orders": first}, watermark="2026-01-01T00:00:10Z")
    assert rows == [{"window": {"start": second(0), "end": second(10)}, "customer": "ada", "total": 3.0}]
    # Batch by batch: the third comes late, behind the watermark that the first two made.
    batches = [first, [{"customer": "bob", "amount": 1.0, "at": second(0, 5)}], [], [{**first[0], "amount": 100.0}]]
    late = ottla.testing.run_flow(revenue, {"orders": batches})
    assert [row["total"] for row in late] == [3.0]
    assert late.late_rows == 1
    assert late.dead_letters == []
    told = ottla.testing.run_flow(replace(revenue, late="orders.late"), {"orders": batches})
    assert [(each.reason, each.record["amount"]) for each in told.dead_letters] == [("late", 100.0)]
    deduplicated = p.sql(
        ORDERS, query="SELECT DISTINCT customer FROM orders", to=p.sink("out"), output_mode="update", late="orders.late"
    )
    with pytest.raises(p.PipelineError, match="Spark does not tell which of its records come late"):
        ottla.testing.run_flow(deduplicated, {"orders": batches})


def test_state_joins_and_queries_run_too(spark: SparkSession) -> None:
    customers = p.files("/nowhere/customers", "customer string, country string", static=True, name="customers")
    named = p.source("visits", p.string(), key=p.string(), columns=("timestamp",))
    query = p.sql(
        ORDERS,
        customers,
        query="SELECT DISTINCT o.customer, c.country FROM orders o JOIN customers c USING (customer)",
        to=p.sink("out"),
        output_mode="update",
    )
    given: dict[str, Any] = {
        "orders": [[{"customer": "ada"}, {"customer": "bob"}, {"customer": "ada"}]],
        "customers": [{"customer": "ada", "country": "GB"}],
    }
    assert ottla.testing.run_flow(query, given) == [{"customer": "ada", "country": "GB"}]
    visits = p.sql(named, query="SELECT key, value, timestamp FROM visits", to=p.sink("out2", key="key"))
    rows = ottla.testing.run_flow(visits, {"visits": [{"key": "k", "value": "home", "timestamp": second(5)}]})
    assert rows == [{"key": "k", "value": "home", "timestamp": second(5)}]
    assert rows.records[0][0].key == b"k"


def test_a_pipeline_runs_whole_and_a_flow_reads_what_another_wrote(spark: SparkSession) -> None:
    big = p.sql(ORDERS, query="SELECT id, amount FROM orders WHERE amount > 10", to=p.sink("big"), name="big")
    huge = p.sql(big, query="SELECT id FROM big WHERE amount > 100", to=p.sink("huge"), name="huge")
    made = trial.run_all(spark, plan([big, huge]), {"orders": [{"id": n, "amount": 60.0 * n} for n in range(3)]})
    assert {name: list(rows) for name, rows in made.items()} == {
        "big": [{"id": 1, "amount": 60.0}, {"id": 2, "amount": 120.0}],
        "huge": [{"id": 2}],
    }
    assert ottla.testing.run_flow(huge, {"big": [{"id": 7, "amount": 500.0}]}) == [{"id": 7}]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"orders": [], "oders": []}, "no flow reads 'oders'"),
        ({}, "there are no rows for 'orders'"),
        ({"orders": [{"id": 0}]}, "flow 'copy' stops: 1 row does not meet expectation 'counted': id > 0"),
        ({"orders": [{"id": 4}]}, "ZeroDivisionError"),
    ],
)
def test_what_would_stop_a_flow_stops_its_test(spark: SparkSession, given: dict[str, Any], words: str) -> None:
    def divided(orders: DataFrame) -> DataFrame:
        from pyspark.sql import functions as F

        inverse = F.udf(lambda number: 1 / (number - 4), "double")
        return orders.select("id", inverse("id").alias("inverse"))

    flow = p.flow(ORDERS, to=p.sink("out"), name="copy")(p.expect("counted", "id > 0", on_fail="stop")(divided))
    with pytest.raises(p.PipelineError) as caught:
        ottla.testing.run_flow(flow, given)
    assert words in caught.value.message


def test_only_flows_are_run(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="is not a flow"):
        ottla.testing.run_flow(print, {})  # type: ignore[arg-type]


PIPELINE = """
from ottla import pipelines as p
from pyspark.sql import functions as F

orders = p.source("orders", p.json("customer string, amount double, at timestamp"), dead_letter="orders.dlq")

@p.flow(orders, to=p.sink("revenue", key="customer"))
@p.expect("some", "total > {least}", on_fail="dead_letter")
def revenue(orders):
    windows = orders.withWatermark("at", "1 second").groupBy(F.window("at", "10 seconds"), "customer")
    return windows.agg(F.sum("amount").alias("total"))
"""


def test_cases_in_files_are_written_compared_and_their_difference_shown(spark: SparkSession, tmp_path: Path) -> None:
    file, case = tmp_path / "orders.py", tmp_path / "orders.tests" / "two_batches"
    file.write_text(PIPELINE.format(least=1))

    def ottla(*words: str) -> Any:
        return CliRunner().invoke(app, ["pipeline", "test", str(file), *words])

    none = ottla()
    assert (none.exit_code, "has no case" in none.stderr) == (1, True)
    case.mkdir(parents=True)
    (case / "orders.jsonl").write_text(
        '{"customer": "ada", "amount": 5, "at": "2026-01-01T00:00:01Z"}\n\n'
        '{"customer": "bob", "amount": 1, "at": "2026-01-01T00:00:02Z"}\n{"customer"\n'
    )
    (case / "case.toml").write_text('watermark = "2026-01-01T00:01:00Z"\n')
    missing = ottla()
    assert (missing.exit_code, '+ {"window"' in missing.stdout) == (1, True)
    assert ottla("--update").exit_code == 0
    total = json.loads((case / "expected" / "revenue.jsonl").read_text())
    assert (total["customer"], total["total"], total["window"]["end"]) == ("ada", 5.0, "2026-01-01T00:00:10.000Z")
    letters = [json.loads(line) for line in (case / "expected" / "dead_letters.jsonl").read_text().splitlines()]
    assert [(each["reason"], each["record"]) for each in letters if each["reason"] != "some"] == [
        ("the value is no JSON", '{"customer"')
    ]
    assert [each["record"]["customer"] for each in letters if each["reason"] == "some"] == ["bob"]
    same = ottla()
    assert (same.exit_code, same.stdout.split()) == (0, ["ok", "two_batches:", "revenue", "1", "row"])
    file.write_text(PIPELINE.format(least=0))
    differs = ottla("--case", "two_batches")
    assert differs.exit_code == 1
    assert "expected/revenue.jsonl: - expected, + found" in differs.stdout
    assert [line.split()[0] for line in differs.stdout.splitlines() if line.startswith("    ")] == ["-", "+"]
    document = json.loads(ottla("--json").stdout)
    assert list(document["cases"][0]["differences"]) == ["expected/dead_letters.jsonl", "expected/revenue.jsonl"]
    unknown = ottla("--case", "three")
    assert "the cases are two_batches" in unknown.stderr
