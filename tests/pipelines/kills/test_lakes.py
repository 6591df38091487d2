"""F82: Delta and Iceberg tables are right, whatever is killed when: each on a Spark that it has jars for.

A model in Python knows what each table must hold. The driver is killed before and after EndTxn, when the table has the batch
already, at TxnOffsetCommit, and at moments of chance. `OTTLA_TEST_ROUNDS=4` makes twelve kills of each; without it there are six.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
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
from tests.kit.sparks import delta_conf, environment, iceberg_conf
from tests.pipelines.kills.drivers import Driver
from tests.pipelines.kills.listening import AFTER, BEFORE, DROP, END_TXN, TXN_OFFSET_COMMIT, Proxy

ROUNDS = int(os.environ.get("OTTLA_TEST_ROUNDS", "2"))
SEED = int(os.environ.get("OTTLA_TEST_SEED", "20"))
PATIENCE_S = float(os.environ.get("OTTLA_TEST_PATIENCE_S", "480"))
PARTITIONS, KEYS = 2, 30
PIPELINE = """
from pyspark.sql import functions as F

from ottla import pipelines as p

orders = p.source("in", p.json("id long, amount double, gone boolean, n long"), name="orders", options={options})
p.sql(orders, to=p.table("{place}log", "{format}"), name="log", query="SELECT n FROM orders")
p.sql(orders, to=p.table("{place}orders", "{format}", mode="upsert", key="id", delete_when="gone"), name="current",
      query="SELECT id, amount, gone FROM orders")


@p.flow(orders, to=p.table("{place}counts", "{format}", mode="upsert", key="id"), output_mode="update")
def counts(orders):
    return orders.groupBy("id").agg(F.count(F.lit(1)).alias("records"))
"""
READ = """
import json, sys
from ottla.pipelines import session
spark = session.start("look", "local[2]", json.loads(sys.argv[1]))
for name in ("log", "orders", "counts"):
    place = sys.argv[2] + name
    found = spark.table(place) if place.startswith("lake.") else spark.read.format("delta").load(place)
    print(json.dumps([name, [list(row) for row in found.collect()]]))
"""
FLOWS = ("log", "current", "counts")


class Lake:
    """A pipeline into three tables: appended, upserted, and upserted with the state of an aggregation."""

    def __init__(self, folder: Path, proxy: Proxy, format: str, release: str) -> None:
        self.folder, self.proxy = folder, proxy
        self.servers = f"127.0.0.1:{proxy.port}"
        self.env = environment(release)
        self.conf = delta_conf(release) if format == "delta" else iceberg_conf(release, folder / "lake")
        self.place = f"{folder}/lake/" if format == "delta" else "lake.shop."
        # Spark 4.1 has no limits for sources in Python.
        options = {} if release == "4.1" else {"maxOffsetsPerTrigger": 40}
        folder.joinpath("shop.py").write_text(PIPELINE.format(place=self.place, format=format, options=options))
        conf = {"spark.sql.shuffle.partitions": "2", **self.conf}
        lines = "".join(f"{json.dumps(name)} = {json.dumps(value)}\n" for name, value in conf.items())
        head = '[pipeline]\ntrigger = "100 ms"\nrestart = "on-failure"\n[spark]\nmaster = "local[2]"\n[spark.conf]\n'
        folder.joinpath("shop.toml").write_text(head + lines)
        self.random = random.Random(SEED)
        self.now: dict[int, float] = {}
        self.records: Counter[int] = Counter()
        self.written = self.starts = 0
        self.driver = self.start_driver()

    def start_driver(self) -> Driver:
        self.starts += 1
        return Driver(self.folder / "shop.py", self.servers, self.folder / f"driver{self.starts}.log", env=self.env)

    def write(self, count: int = 100) -> None:
        producer = Producer({"bootstrap.servers": self.servers, "enable.idempotence": True, "log_level": 0})
        for _ in range(count):
            key, gone = self.random.randrange(KEYS), self.random.random() < 0.3
            amount = float(self.random.randrange(5))
            record = {"id": key, "amount": amount, "gone": gone, "n": self.written}
            # One partition for each key: its records have an order.
            producer.produce("in", json.dumps(record), partition=key % PARTITIONS)
            if gone:
                self.now.pop(key, None)
            else:
                self.now[key] = amount
            self.records[key] += 1
            self.written += 1
        assert producer.flush(PATIENCE_S) == 0

    def is_done(self) -> bool:
        places = [TopicPartition("in", number) for number in range(PARTITIONS)]
        with Client(plain_options(self.servers)) as client:
            ends = {where: entry.offset for where, entry in list_offsets(client, dict.fromkeys(places, LATEST)).items()}
            found = [committed_offsets(client, f"shop.{flow}") for flow in FLOWS]
            return all({where: entry.offset for where, entry in each.items()} == ends for each in found)

    def wait(self, done: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE_S
        while not done():
            assert time.monotonic() < deadline, f"{what}: not in time (seed {SEED})\n{self.driver.log[-5000:]}"
            if not self.driver.running:
                self.driver = self.start_driver()
            time.sleep(0.2)

    def dies(self, api_key: int, moment: str) -> None:
        """The driver dies at a request of one of its flows."""
        driver = self.driver

        def act() -> bool:
            driver.kill()
            return DROP

        blow = self.proxy.arm(api_key, moment, f"shop.{self.random.choice(FLOWS)}", act)
        self.write()
        self.wait(blow.struck.is_set, "the blow")
        if blow.failure is not None:
            raise blow.failure

    def dies_by_chance(self) -> None:
        """In the midst of a batch: each takes seconds."""
        self.write()
        time.sleep(self.random.random() * 4)
        self.driver.kill()

    def check(self) -> None:
        self.wait(self.is_done, "all batches")
        words = [sys.executable, "-c", READ, json.dumps(self.conf), self.place]
        done = subprocess.run(words, capture_output=True, text=True, env=self.env, timeout=600)
        assert done.returncode == 0, done.stderr[-3000:]
        found: dict[str, Any] = dict(json.loads(line) for line in done.stdout.splitlines() if line.startswith("["))
        assert Counter(n for (n,) in found["log"]) == Counter(range(self.written)), f"seed {SEED}"
        assert sorted(map(tuple, found["orders"])) == sorted(self.now.items()), f"seed {SEED}"
        assert sorted(map(tuple, found["counts"])) == sorted(self.records.items()), f"seed {SEED}"


@pytest.mark.slow
@pytest.mark.timeout(7200)
@pytest.mark.parametrize(("format", "release"), [("delta", "4.1"), ("delta", "4.2"), ("iceberg", "4.1")])
def test_tables_hold_every_batch_once_whatever_is_killed(format: str, release: str, tmp_path: Path) -> None:
    proxy = Proxy()
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
    try:
        with Broker(advertised) as broker:
            host, _, port = broker._listeners[0].rpartition("//")[2].rpartition(":")
            proxy.upstream = host, int(port)
            admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{proxy.port}", "log_level": 0})
            admin.create_topics([NewTopic("in", PARTITIONS, 1)], operation_timeout=30)["in"].result(60)
            lake = Lake(tmp_path, proxy, format, release)
            try:
                lake.write(30)
                lake.wait(lake.is_done, "the first batches")
                for number in range(ROUNDS):
                    lake.dies(END_TXN, BEFORE)
                    lake.wait(lake.is_done, "after the first kill")
                    lake.dies_by_chance()
                    lake.wait(lake.is_done, "after the second kill")
                    lake.dies(*((END_TXN, AFTER) if number % 2 else (TXN_OFFSET_COMMIT, BEFORE)))
                    lake.check()
            finally:
                lake.driver.close()
    finally:
        proxy.close()
