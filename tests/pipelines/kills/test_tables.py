"""F82: an upserted table of PostgreSQL, its history and a table of files are right, whatever is killed when.

A model in Python knows what each table must hold. Blows fall before and after EndTxn, when the tables have the batch already, and
at moments of chance; the database is killed too.
"""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client.blocking import Client
from ottla.client.offsets import LATEST, committed_offsets, list_offsets
from ottla.client.options import plain_options
from ottla.testing import Broker
from ottla.types import TopicPartition
from tests.kit.databases import PostgreSQL, driver_jars
from tests.pipelines.kills.drivers import Driver
from tests.pipelines.kills.listening import AFTER, BEFORE, DROP, END_TXN, Proxy

ROUNDS = int(os.environ.get("OTTLA_TEST_ROUNDS", "2"))
SEED = int(os.environ.get("OTTLA_TEST_SEED", "20"))
PATIENCE_S = float(os.environ.get("OTTLA_TEST_PATIENCE_S", "480"))
PARTITIONS, KEYS = 3, 40
PIPELINE = """
from ottla import pipelines as p

orders = p.source("in", p.json("id long, amount double, gone boolean, n long"), name="orders",
                  options={{"maxOffsetsPerTrigger": 60}})
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
    def __init__(self, folder: Path, database: PostgreSQL, proxy: Proxy) -> None:
        self.folder, self.database, self.proxy = folder, database, proxy
        self.servers = f"127.0.0.1:{proxy.port}"
        self.lake = folder / "lake"
        url = database.create_database("shop")
        folder.joinpath("shop.py").write_text(PIPELINE.format(url=url, lake=self.lake))
        folder.joinpath("shop.toml").write_text(SETTINGS.format(jars=",".join(map(str, driver_jars()))))
        self.random = random.Random(SEED)
        self.versions: dict[int, list[float | None]] = {}
        self.written = 0
        self.starts = 0
        self.driver = self.start_driver()

    def start_driver(self) -> Driver:
        self.starts += 1
        return Driver(self.folder / "shop.py", self.servers, self.folder / f"driver{self.starts}.log")

    def write(self, count: int = 150) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "log_level": 0})
        for _ in range(count):
            key, gone = self.random.randrange(KEYS), self.random.random() < 0.3
            amount = float(self.random.randrange(3))
            record = {"id": key, "amount": amount, "gone": gone, "n": self.written}
            # One partition for each key: its records have an order.
            producer.produce("in", json.dumps(record), key=str(key), partition=key % PARTITIONS)
            states = self.versions.setdefault(key, [])
            state = None if gone else amount
            if (states[-1] if states else None) != state:
                states.append(state)
            self.written += 1
        assert producer.flush(PATIENCE_S) == 0

    def is_done(self) -> bool:
        places = [TopicPartition("in", number) for number in range(PARTITIONS)]
        with Client(plain_options(self.servers)) as client:
            ends = {where: entry.offset for where, entry in list_offsets(client, dict.fromkeys(places, LATEST)).items()}
            return all(
                {where: entry.offset for where, entry in committed_offsets(client, f"shop.{flow}").items()} == ends
                for flow in FLOWS
            )

    def wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, f"{what}: not in time (seed {SEED})\n{self.driver.log[-5000:]}"
            if not self.driver.running:
                self.driver = self.start_driver()
            time.sleep(0.2)

    def check(self) -> None:
        self.wait(self.is_done, "all batches")
        rows = self.database.rows("shop", "SELECT id, amount FROM orders")
        now = {key: states[-1] for key, states in self.versions.items() if states and states[-1] is not None}
        assert {int(key): float(amount) for key, amount in rows} == now, f"seed {SEED}"
        assert len(rows) == len(now)
        found: dict[int, list[Any]] = {}
        history = "SELECT id, amount, valid_from, valid_to, current FROM versions ORDER BY id, valid_from"
        for key, amount, start, end, current in self.database.rows("shop", history):
            assert (end == "NULL") == (current == "t")
            assert end == "NULL" or start < end
            found.setdefault(int(key), []).append(float(amount))
        expected = {key: [state for state in states if state is not None] for key, states in self.versions.items()}
        assert found == {key: states for key, states in expected.items() if states}, f"seed {SEED}"
        log = Counter(int(n) for (n,) in self.database.rows("shop", "SELECT n FROM log"))
        assert log == Counter(range(self.written)), f"seed {SEED}"
        assert Counter(numbers_in(self.lake)) == Counter(range(self.written)), f"seed {SEED}"

    # Blows

    def driver_dies(self, moment: str) -> None:
        driver = self.driver

        def act() -> bool:
            driver.kill()
            return DROP

        blow = self.proxy.arm(END_TXN, moment, f"shop.{self.random.choice(FLOWS)}", act)
        self.write()
        self.wait(blow.struck.is_set, "the blow")
        if blow.failure is not None:
            raise blow.failure

    def driver_dies_by_chance(self) -> None:
        self.write()
        time.sleep(self.random.random() * 3)
        self.driver.kill()

    def database_dies(self) -> None:
        self.write(75)
        self.database.kill()
        self.write(75)
        self.database.start()


def numbers_in(lake: Path) -> list[int]:
    import pyarrow.parquet as pq

    return [n for path in lake.rglob("*.parquet") for n in pq.ParquetFile(path).read(["n"]).column("n").to_pylist()]


@contextmanager
def tables(folder: Path) -> Iterator[Tables]:
    proxy = Proxy()
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
    try:
        with Broker(advertised) as broker, PostgreSQL() as database:
            host, _, port = broker._listeners[0].rpartition("//")[2].rpartition(":")
            proxy.upstream = host, int(port)
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{proxy.port}", "log_level": 0})
            admin.create_topics([NewTopic("in", PARTITIONS, 1)], operation_timeout=30)["in"].result(60)
            made = Tables(folder, database, proxy)
            try:
                yield made
            finally:
                made.driver.close()
    finally:
        proxy.close()


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_tables_hold_every_batch_once_whatever_is_killed(tmp_path: Path) -> None:
    with tables(tmp_path) as found:
        found.write(30)
        found.check()
        for _ in range(ROUNDS):
            for blow in (
                lambda: found.driver_dies(BEFORE),
                found.database_dies,
                found.driver_dies_by_chance,
                lambda: found.driver_dies(AFTER),
                found.driver_dies_by_chance,
            ):
                blow()
                found.check()
        staging = "SELECT table_name FROM information_schema.tables WHERE table_name LIKE '%\\_ottla\\_%'"
        assert found.database.rows("shop", staging) == []
