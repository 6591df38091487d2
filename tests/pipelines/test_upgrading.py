"""An upgrade beside a running pipeline, on a real Spark and a real broker (F83)."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.pipelines import project, topics, upgrading
from ottla.pipelines.edits import Kind, State
from ottla.pipelines.failure import PipelineError, Superseded
from ottla.pipelines.switching import live_project
from ottla.pipelines.versions import Versions
from tests.kit.wait import until

if TYPE_CHECKING:
    from tests.pipelines.conftest import Shop

FLOWS = """
from pyspark.sql import functions as F
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long, customer string, amount double, at timestamp"), name="orders")

p.sql(orders, to=p.sink("{out}.copy", key="id"), name="copy", query="SELECT id, {amount} AS amount, {version} AS v FROM orders")
p.sql(orders, to=p.sink("{out}.same", key="id"), name="same", query="SELECT id FROM orders")
p.sql(orders, to=p.jdbc("{database}", "copies", options={{"driver": "org.apache.derby.iapi.jdbc.AutoloadedDriver"}}), name="rows",
      query="SELECT id, {version} AS v FROM orders")

@p.flow(orders, to=p.sink("{out}.counts", key="customer"), output_mode="update")
def counts(orders):
    return orders.groupBy("customer").count().selectExpr("customer", "count", "{version} AS v")

@p.flow(orders, to=p.sink("{out}.sums", key="customer"))
def sums(orders):
    return (orders.withWatermark("at", "10 seconds")
                  .groupBy(F.window("at", "10 seconds"), "customer")
                  .agg(F.{aggregate}("amount").alias("total"), F.lit({version}).alias("v"))
                  .selectExpr("customer", "CAST(window.start AS long) AS start", "total", "v"))
"""


def order(number: int) -> dict[str, Any]:
    """One a second."""
    return {"id": number, "customer": f"c{number % 2}", "amount": float(number % 7), "at": 1_700_000_000 + number}


def written(shop: Shop, file: Path, **values: Any) -> Path:
    file.parent.mkdir(exist_ok=True)
    file.write_text(FLOWS.format(**values))
    return file


def upgrade(shop: Shop, file: Path, *, dry_run: bool = False, to: str | None = None) -> Any:
    given = project.override(
        project.read(file),
        bootstrap_servers=shop.broker.bootstrap_servers,
        storage=str(shop.folder / "storage"),
        trigger="100 ms",
    )
    with topics.Clients(given) as clients:
        live = live_project(clients.of(None), given, ["copy", "same", "rows", "counts", "sums"])
        versions = Versions(shop.spark, given.storage)
        kept = versions.read(live.version)
        assert kept is not None
        wanted = versions.read(to) if to is not None else None
        new = upgrading.loaded(file) if wanted is None else upgrading.loaded_version(versions, wanted)
        work = upgrading.Upgrade(shop.spark, clients, live, upgrading.loaded_version(versions, kept), new)
        edits = work.examine()
        over = work.stretch(edits, 1000, None)
        differences = work.shadowed(edits, over, 5)
        return edits, differences, None if dry_run else work.switch(edits)


def sums(shop: Shop, topic: str) -> Counter[tuple[str, int]]:
    return Counter((row["customer"], row["start"]) for row in shop.values(topic))


def test_an_upgrade_and_a_rollback_lose_and_double_nothing(shop: Shop) -> None:
    source = shop.topic("in", 2)
    out = f"{shop.prefix}out"
    for name in ("copy", "same", "counts", "sums"):
        shop.topic(f"out.{name}", 2)
    database = f"jdbc:derby:{shop.folder}/db;create=true"
    names = {"source": source, "out": out, "database": database}
    file = written(shop, shop.folder / "shop.py", **names, amount="amount", aggregate="sum", version=1)
    shop.produce(source, [order(number) for number in range(60)])
    has_ended = False
    # The end of the block raises the failure once more.
    with suppress(Superseded), shop.flows(file, once=False) as driver:
        driver.start()
        until(
            lambda: len(shop.values(f"{out}.copy")) == 60,
            "the old version writes",
            120,
            every_s=0,
            meanwhile=lambda: driver.wait(0.5),
        )
        until(
            lambda: len(shop.values(f"{out}.sums")) >= 6, "it closes windows", 120, every_s=0, meanwhile=lambda: driver.wait(0.5)
        )
        until(
            lambda: driver.sinks["rows"].totals.batches, "it writes the table", 120, every_s=0, meanwhile=lambda: driver.wait(0.5)
        )
        written(shop, file, **names, amount="amount * 2", aggregate="max", version=2)
        edits, differences, new = upgrade(shop, file)
        assert {each.flow: (each.kind, each.state) for each in edits} == {
            "copy": (Kind.EDITED, State.NONE),
            "same": (Kind.UNCHANGED, State.KEPT),
            "rows": (Kind.EDITED, State.NONE),
            "counts": (Kind.EDITED, State.CARRIED),
            "sums": (Kind.EDITED, State.REBUILT),
        }
        by_flow = {each.flow: each.rows for each in differences}
        assert by_flow.keys() == {"copy", "rows", "counts", "sums"}
        assert (by_flow["copy"].changed, by_flow["copy"].only_old, by_flow["copy"].only_new) == (60, 0, 0)
        assert by_flow["copy"].sample[0].fields() is not None
        assert new.version.startswith("2-")
        shop.produce(source, [order(number) for number in range(60, 120)])
        with pytest.raises(Superseded, match=r"is being upgraded to version 2|version 2 of the pipeline is live"):
            driver.wait(60)
        has_ended = True
    assert has_ended
    shop.run(file)
    copies = shop.values(f"{out}.copy")
    assert Counter(row["id"] for row in copies) == Counter(range(120))
    assert all(row["v"] == (1 if row["id"] < 60 else 2) for row in copies)
    assert Counter(row["id"] for row in shop.values(f"{out}.same")) == Counter(range(120))
    totals = {(row["customer"], row["start"]): row for row in shop.values(f"{out}.sums")}
    assert set(sums(shop, f"{out}.sums").values()) == {1}
    rows = [order(number) for number in range(120)]
    for (customer, start), row in totals.items():
        amounts = [each["amount"] for each in rows if each["customer"] == customer and start <= each["at"] < start + 10]
        assert row["total"] == (sum(amounts) if row["v"] == 1 else max(amounts)), row
    assert max(row["count"] for row in shop.values(f"{out}.counts") if row["v"] == 2) == 60
    table = shop.spark.read.format("jdbc").option("url", database).option("dbtable", "copies").load()
    assert Counter(row["id"] for row in table.collect()) == Counter(range(120))
    # Nobody may go on with the old code by accident.
    old = written(shop, shop.folder / "old" / "shop.py", **names, amount="amount", aggregate="sum", version=1)
    with pytest.raises(PipelineError, match=r"is the code of version 1, but version 2"):
        shop.run(old)
    _, _, back = upgrade(shop, file, to="1")
    assert back.version.startswith("3-")
    shop.produce(source, [order(number) for number in range(120, 180)])
    shop.run(old)
    copies = shop.values(f"{out}.copy")
    assert Counter(row["id"] for row in copies) == Counter(range(180))
    assert all(row["v"] == (2 if 60 <= row["id"] < 120 else 1) for row in copies)
    assert Counter(row["id"] for row in table.collect()) == Counter(range(180))
    assert max(row["count"] for row in shop.values(f"{out}.counts")) == 90
    starts = sums(shop, f"{out}.sums")
    assert set(starts.values()) == {1}
    first, last = order(0)["at"] // 10 * 10, order(179)["at"] // 10 * 10
    assert {start for _, start in starts} == set(range(first, last - 10, 10)), json.dumps(sorted(starts))
