"""F82: Delta and Iceberg tables are right, whatever is killed when: each on a Spark that it has jars for.

The driver is killed before and after EndTxn, when the table has the batch already, at TxnOffsetCommit, and at moments of chance.
`OTTLA_TEST_ROUNDS=4` makes twelve kills of each; without it there are six.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.kit.sparks import delta_conf, environment, iceberg_conf
from tests.pipelines.kills.listening import AFTER, BEFORE, END_TXN, TXN_OFFSET_COMMIT
from tests.pipelines.kills.shop import ROUNDS, SEED, SOURCE, Shop, broker

PIPELINE = """
from pyspark.sql import functions as F

from ottla import pipelines as p

orders = {source}
p.sql(orders, to=p.table("{place}log", "{format}"), name="log", query="SELECT n FROM orders")
upsert = {{"mode": "upsert", "key": "id", "delete_when": "gone"}}
QUERY = "SELECT id, amount, gone FROM orders"
p.sql(orders, to=p.table("{place}orders", "{format}", **upsert), name="current", query=QUERY)
p.sql(orders, to=p.table("{place}versions", "{format}", history=True, **upsert), name="versions", query=QUERY)


@p.flow(orders, to=p.table("{place}counts", "{format}", mode="upsert", key="id"), output_mode="update")
def counts(orders):
    return orders.groupBy("id").agg(F.count(F.lit(1)).alias("records"))
"""
READ = """
import json, sys
from ottla.pipelines import session
spark = session.start("look", "local[2]", json.loads(sys.argv[1]))
for name in ("log", "orders", "versions", "counts"):
    place = sys.argv[2] + name
    found = spark.table(place) if place.startswith("lake.") else spark.read.format("delta").load(place)
    print(json.dumps([name, [list(row) for row in found.collect()]], default=str))
"""
FLOWS = ("log", "current", "versions", "counts")


class Lake:
    """A pipeline into four tables: appended, upserted, with history, and upserted with the state of an aggregation."""

    def __init__(self, folder: Path, format: str, release: str) -> None:
        self.env = environment(release)
        self.conf = delta_conf(release) if format == "delta" else iceberg_conf(release, folder / "lake")
        self.place = f"{folder}/lake/" if format == "delta" else "lake.shop."
        # Spark 4.1 has no limits for sources in Python.
        options = {} if release == "4.1" else {"maxOffsetsPerTrigger": 60}
        source = SOURCE.format(options=options)
        folder.joinpath("shop.py").write_text(PIPELINE.format(source=source, place=self.place, format=format))
        conf = {"spark.sql.shuffle.partitions": "2", **self.conf}
        lines = "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in conf.items())
        head = '[pipeline]\ntrigger = "100 ms"\nrestart = "on-failure"\n[spark]\nmaster = "local[2]"\n[spark.conf]\n'
        folder.joinpath("shop.toml").write_text(head + lines)

    def check(self, shop: Shop) -> None:
        shop.settle()
        words = [sys.executable, "-c", READ, json.dumps(self.conf), self.place]
        done = subprocess.run(words, capture_output=True, text=True, env=self.env, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, Any] = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
        assert Counter(n for (n,) in found["log"]) == shop.numbers, f"seed {SEED}"
        assert sorted(map(tuple, found["orders"])) == sorted(shop.now.items()), f"seed {SEED}"
        assert sorted(map(tuple, found["counts"])) == sorted(shop.records.items()), f"seed {SEED}"
        versions: dict[int, list[float]] = {}
        for key, amount, start, end, current in sorted(found["versions"], key=lambda row: row[2]):
            assert (end is None) == current
            assert end is None or start < end
            versions.setdefault(key, []).append(amount)
        assert versions == shop.versions, f"seed {SEED}"


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("format", "release"), [("delta", "4.1"), ("delta", "4.2"), ("iceberg", "4.1")])
def test_tables_hold_every_batch_once_whatever_is_killed(format: str, release: str, tmp_path: Path) -> None:
    lake = Lake(tmp_path, format, release)
    with broker() as proxy:
        shop = Shop(tmp_path, proxy, FLOWS, lake.env)
        try:
            shop.write(30)
            shop.wait(shop.is_done, "the first batches")
            for number in range(ROUNDS):
                shop.dies(END_TXN, BEFORE)
                shop.wait(shop.is_done, "after the first kill")
                shop.dies_by_chance(4)  # in the midst of a batch: each takes seconds
                shop.wait(shop.is_done, "after the second kill")
                shop.dies(*((END_TXN, AFTER) if number % 2 else (TXN_OFFSET_COMMIT, BEFORE)))
                lake.check(shop)
        finally:
            shop.driver.close()
