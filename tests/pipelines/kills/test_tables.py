"""F82: an upserted table of PostgreSQL, its history and a table of files are right, whatever is killed when.

Blows fall before and after EndTxn, when the tables have the batch already, and at moments of chance; the database is killed too.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.databases import PostgreSQL, driver_jars
from tests.pipelines.kills.listening import AFTER, BEFORE, END_TXN
from tests.pipelines.kills.shop import ROUNDS, SEED, SOURCE, Shop, broker

PIPELINE = """
from ottla import pipelines as p

orders = {source}
upsert = {{"mode": "upsert", "key": "id", "delete_when": "gone"}}
QUERY = "SELECT id, amount, gone FROM orders"
p.sql(orders, to=p.jdbc("{url}", "orders", **upsert), name="current", query=QUERY)
p.sql(orders, to=p.jdbc("{url}", "versions", history=True, **upsert), name="versions", query=QUERY)
p.sql(orders, to=p.jdbc("{url}", "log"), name="log", query="SELECT n FROM orders")
p.sql(orders, to=p.table("{lake}", partition_by="id"), name="files", query="SELECT id % 3 AS id, n FROM orders")
"""
SETTINGS = """
[pipeline]
trigger = "100 ms"
restart = "on-failure"
compact = "2 seconds"

[spark]
master = "local[2]"

[spark.conf]
"spark.jars" = "{jars}"
"spark.sql.shuffle.partitions" = 2
"""
FLOWS = ("current", "versions", "log", "files")


class Tables:
    def __init__(self, folder: Path, database: PostgreSQL) -> None:
        self.database, self.lake = database, folder / "lake"
        source = SOURCE.format(options={"maxOffsetsPerTrigger": 60})
        url = database.create_database("shop")
        folder.joinpath("shop.py").write_text(PIPELINE.format(source=source, url=url, lake=self.lake))
        folder.joinpath("shop.toml").write_text(SETTINGS.format(jars=",".join(map(str, driver_jars()))))

    def check(self, shop: Shop) -> None:
        shop.settle()
        rows = self.database.rows("shop", "SELECT id, amount FROM orders")
        assert {int(key): float(amount) for key, amount in rows} == shop.now, f"seed {SEED}"
        assert len(rows) == len(shop.now)
        versions: dict[int, list[float]] = {}
        history = "SELECT id, amount, valid_from, valid_to, current FROM versions ORDER BY id, valid_from"
        for key, amount, start, end, current in self.database.rows("shop", history):
            assert (end == "NULL") == (current == "t")
            assert end == "NULL" or start < end
            versions.setdefault(int(key), []).append(float(amount))
        assert versions == shop.versions, f"seed {SEED}"
        log = Counter(int(n) for (n,) in self.database.rows("shop", "SELECT n FROM log"))
        assert log == shop.numbers, f"seed {SEED}"
        assert Counter(numbers_in(self.lake)) == shop.numbers, f"seed {SEED}"

    def database_dies(self, shop: Shop) -> None:
        shop.write(75)
        self.database.kill()
        shop.write(75)
        self.database.start()


def numbers_in(lake: Path) -> list[int]:
    import pyarrow.parquet as pq

    return [n for path in lake.rglob("*.parquet") for n in pq.ParquetFile(path).read(["n"]).column("n").to_pylist()]


@contextmanager
def staged(folder: Path) -> Iterator[tuple[Tables, Shop]]:
    with broker() as proxy, PostgreSQL() as database:
        tables = Tables(folder, database)
        shop = Shop(folder, proxy, FLOWS)
        try:
            yield tables, shop
        finally:
            shop.driver.close()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_tables_hold_every_batch_once_whatever_is_killed(tmp_path: Path) -> None:
    with staged(tmp_path) as (tables, shop):
        shop.write(30)
        tables.check(shop)
        for _ in range(ROUNDS):
            for blow in (
                lambda: shop.dies(END_TXN, BEFORE),
                lambda: tables.database_dies(shop),
                lambda: shop.dies_by_chance(3),
                lambda: shop.dies(END_TXN, AFTER),
                lambda: shop.dies_by_chance(3),
            ):
                blow()
                tables.check(shop)
        staging = "SELECT table_name FROM information_schema.tables WHERE table_name LIKE '%\\_ottla\\_%'"
        assert tables.database.rows("shop", staging) == []
