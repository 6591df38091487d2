"""Delta and Iceberg with the newest jars there are, on this Spark (F82).

Neither has a release for Spark 4.3 (looked for in November 2026), and those for 4.1 do not fit: Delta 4.4.0 makes a table, then
cannot read its own log, Iceberg 1.12.0 does not begin. What is shown is that the flow says so, and that what was in stays as it
was. When a release fits, a test fails here, and it is time for one that looks at the rows.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing import Broker

pytestmark = [pytest.mark.slow, pytest.mark.java, pytest.mark.timeout(3600)]

PIPELINE = """
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long"), name="orders")
p.sql(orders, to=p.table("{table}", "{format}"), name="rows", query="SELECT * FROM orders")
"""
DELTA = ("io.delta:delta-spark_4.1_2.13:4.4.0", "io.delta:delta-storage:4.4.0")
ICEBERG = ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)


class Lake:
    """A pipeline from a topic into a table, run in a process of its own: jars are given to Spark when it starts."""

    def __init__(self, folder: Path, broker: Broker, format: str, table: str, conf: dict[str, str]) -> None:
        self.broker, self.conf, self.source = broker, conf, f"table-jars-{format}"
        self.file = folder / "shop.py"
        self.file.write_text(PIPELINE.format(source=self.source, table=table, format=format))
        broker.create_topic(self.source, 1)

    def produce(self, *ids: int) -> None:
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})
        for number in ids:
            producer.produce(self.source, json.dumps({"id": number}))
        assert producer.flush(60) == 0

    def run(self) -> subprocess.CompletedProcess[str]:
        words = [sys.executable, "-m", "ottla", "pipeline", "run", str(self.file), "--once"]
        words += ["-b", self.broker.bootstrap_servers]
        for name, value in self.conf.items():
            words += ["--conf", f"{name}={value}"]
        return subprocess.run(words, capture_output=True, text=True, timeout=900, cwd=self.file.parent)


def jars(artifacts: tuple[str, ...]) -> str:
    from tests.kit.peers import single_jars

    return ",".join(map(str, single_jars("spark-tables", artifacts)))


def ids_in_delta(table: Path) -> list[int]:
    """By Delta's own log: the files that were added and not removed."""
    import pyarrow.parquet as pq

    files: set[str] = set()
    for entry in sorted((table / "_delta_log").glob("*.json")):
        for action in map(json.loads, entry.read_text().splitlines()):
            if "add" in action:
                files.add(action["add"]["path"])
            elif "remove" in action:
                files.discard(action["remove"]["path"])
    return sorted(number for file in files for number in pq.read_table(table / file).column("id").to_pylist())


def test_f82_delta_made_for_another_spark_stops_the_flow_with_a_clear_message(tmp_path: Path, ottla_broker: Broker) -> None:
    table = tmp_path / "lake"
    conf = {
        "spark.jars": jars(DELTA),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    }
    lake = Lake(tmp_path, ottla_broker, "delta", str(table), conf)
    lake.produce(*range(5))
    first = lake.run()
    assert first.returncode == 0, first.stdout + first.stderr
    lake.produce(*range(5, 8))
    done = lake.run()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "use delta jars that are made for Spark" in done.stderr, done.stderr
    assert f"{lake.file}:5" in done.stderr, done.stderr
    assert ids_in_delta(table) == list(range(5))


def test_f82_iceberg_made_for_another_spark_stops_the_flow_with_a_clear_message(tmp_path: Path, ottla_broker: Broker) -> None:
    warehouse = tmp_path / "lake"
    conf = {
        "spark.jars": jars(ICEBERG),
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(warehouse),
    }
    lake = Lake(tmp_path, ottla_broker, "iceberg", "lake.shop.orders", conf)
    lake.produce(1)
    done = lake.run()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "use iceberg jars that are made for Spark" in done.stderr, done.stderr
    assert f"{lake.file}:5" in done.stderr, done.stderr
    assert not list(warehouse.rglob("*.parquet"))
