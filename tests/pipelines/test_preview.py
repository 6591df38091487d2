"""What flows make of records that are there, without writing anything; pipelines in a notebook (F77)."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import textwrap
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from ottla import pipelines as p
from ottla.cli.app import app

if TYPE_CHECKING:
    from ottla.testing import Broker
    from tests.pipelines.conftest import Shop

PIPELINE = """
from ottla import pipelines as p
from pyspark.sql import functions as F

orders = p.source("{source}", p.json("id long, customer string, amount double"), name="orders", dead_letter="{prefix}dlq")

@p.flow(orders, to=p.sink("{prefix}big", key="id"))
@p.expect("even", "id % 2 = 0", on_fail="drop")
def big(orders):
    return orders.where("amount > 10")

@p.flow(big, to=p.sink("{prefix}totals"))
def totals(big):
    return big.groupBy("customer").agg(F.sum("amount").alias("total"))
"""


@pytest.fixture
def spark_of_tests(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """The command would stop the session that all tests share."""
    monkeypatch.setattr("ottla.cli.pipeline.running.spark_session", lambda project, ship: nullcontext(shop.spark))


def topics_and_groups(broker: Broker) -> tuple[set[str], set[str]]:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers, "log_level": 0})
    groups = admin.list_consumer_groups().result(30).valid
    return set(admin.list_topics(timeout=30).topics), {group.group_id for group in groups}


@pytest.mark.usefixtures("spark_of_tests")
def test_a_preview_shows_rows_and_leaves_nothing_behind(shop: Shop, tmp_path: Path) -> None:
    source = shop.topic("orders", 2)
    file = shop.pipeline(PIPELINE.format(source=source, prefix=shop.prefix))
    shop.produce(source, [{"id": n, "customer": "ada", "amount": 20.0} for n in range(4)])
    before = topics_and_groups(shop.broker)

    def preview(*words: object) -> Any:
        arguments = ["pipeline", "preview", str(file), "-b", shop.broker.bootstrap_servers, *map(str, words)]
        done = CliRunner().invoke(app, arguments)
        assert done.exit_code == 0, done.stderr
        return done.stdout

    flows = {each["flow"]: each for each in json.loads(preview("--json"))["flows"]}
    assert sorted((row["id"], row["(unmet)"]) for row in flows["big"]["rows"]) == [(0, ""), (1, "even"), (2, ""), (3, "even")]
    assert flows["totals"]["rows"] == [{"customer": "ada", "total": 40.0}]
    assert flows["big"]["read"] == {"orders": 4}
    shown = preview("--flow", "big", "-n", 2)
    assert shown.splitlines()[0] == "big: 2 rows of 4 records of orders"
    assert "CUSTOMER" not in shown
    assert len(json.loads(preview("--flow", "totals", "--records", 2, "--json"))["flows"][0]["rows"]) == 1
    assert topics_and_groups(shop.broker) == before
    assert not (tmp_path / ".ottla").exists()


@pytest.mark.usefixtures("spark_of_tests")
@pytest.mark.parametrize("is_json", [True, False])
def test_a_preview_shows_times_and_nested_values_as_json_has_them(shop: Shop, is_json: bool) -> None:
    source = shop.topic("orders")
    columns = "window(at, '10 seconds') AS window, at, date(at) AS day, array(at) AS times, 1.50 AS price, b, unhex('ff') AS raw"
    file = shop.pipeline(
        f"""
from ottla import pipelines as p
orders = p.source("{source}", p.json("at timestamp, b binary"), name="orders", dead_letter="{shop.prefix}dlq")
p.sql(orders, to=p.sink("{shop.prefix}out"), name="out", query="SELECT {columns} FROM orders")
"""
    )
    shop.produce(source, [{"at": "2026-01-01T00:00:01.25Z", "b": "aGk="}])
    words = ["pipeline", "preview", str(file), "-b", shop.broker.bootstrap_servers, *(["--json"] if is_json else [])]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0, done.output
    window = {"start": "2026-01-01T00:00:00.000Z", "end": "2026-01-01T00:00:10.000Z"}
    at = "2026-01-01T00:00:01.250Z"
    if is_json:
        (row,) = json.loads(done.stdout)["flows"][0]["rows"]
        assert row == {"window": window, "at": at, "day": "2026-01-01", "times": [at], "price": 1.5, "b": "hi", "raw": "/w=="}
    else:
        assert re.split("  +", done.stdout.splitlines()[-1]) == [json.dumps(window), at, "2026-01-01", at, "1.5", "hi", "/w=="]


@pytest.mark.usefixtures("spark_of_tests")
def test_a_preview_without_rows_says_what_does_not_parse(shop: Shop) -> None:
    source = shop.topic("orders")
    file = shop.pipeline(PIPELINE.format(source=source, prefix=shop.prefix))
    shop.produce(source, [b"{", b"}"])
    done = CliRunner().invoke(app, ["pipeline", "preview", str(file), "-b", shop.broker.bootstrap_servers, "--flow", "big"])
    assert done.stdout == "big: 0 rows of 2 records of orders\n"
    assert "2 records of its sources: the value is no JSON" in done.stderr


def test_a_notebook_previews_and_runs_flows(shop: Shop, tmp_path: Path) -> None:
    source, out = shop.topic("orders"), shop.topic("out")
    orders = p.source(source, p.json("id long"), name="orders")
    copy = p.sql(orders, query="SELECT id + 1 AS id FROM orders", to=p.sink(out), name="copy")
    shop.produce(source, [{"id": n} for n in range(3)])
    settings: dict[str, Any] = {"bootstrap_servers": shop.broker.bootstrap_servers}
    assert list(orders.preview(2, **settings)["id"]) == [0, 1]
    assert list(copy.preview(spark=shop.spark, **settings)["id"]) == [1, 2, 3]
    assert shop.read(out) == []
    done = p.run(shop.spark, copy, once=True, storage=str(tmp_path / "state"), name=f"{shop.prefix}book", **settings)
    assert done.sinks["copy"].totals.records == 3
    assert [value["id"] for value in shop.values(out)] == [1, 2, 3]
    with pytest.raises(p.PipelineError, match="no flow to run"):
        p.run(shop.spark)


_START = 'spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()'


@pytest.mark.slow
@pytest.mark.parametrize(
    "begin",
    [
        f"import ottla; {_START}",
        f"{_START}; import ottla",
        f"{_START}; import ottla; assert ottla.spark.session() is spark",
    ],
)
def test_format_ottla_works_where_another_python_is_first_on_the_path(ottla_broker: Broker, ottla_topic: str, begin: str) -> None:
    """A notebook's kernel runs the Python of a venv that is not on the PATH."""
    script = textwrap.dedent(f"""
        from pyspark.sql import SparkSession
        from pyspark.errors import PySparkException
        {begin}
        servers = ("kafka.bootstrap.servers", "{ottla_broker.bootstrap_servers}")
        writer = spark.range(3).selectExpr("CAST(id AS STRING) AS value").write.format("ottla").mode("append")
        writer.option(*servers).option("topic", "{ottla_topic}").save()
        reader = spark.read.format("ottla").option(*servers)
        print("rows", reader.option("subscribe", "{ottla_topic}").load().count())
        away = spark.read.format("ottla").option("kafka.bootstrap.servers", "127.0.0.1:1").option("subscribe", "orders").load()
        import time
        began = time.monotonic()
        try:
            away.count()
        except PySparkException as error:
            print("away", "127.0.0.1:1" in str(error), time.monotonic() - began < 30)
    """)
    path = os.pathsep.join(["/usr/bin", "/bin"])
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**environment, "PATH": path},
    )
    assert done.stdout.splitlines() == ["rows 3", "away True True"], done.stderr[-3000:]
