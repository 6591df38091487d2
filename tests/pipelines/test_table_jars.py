"""Delta and Iceberg with the newest jars there are, on this Spark (F82).

No release of either fits Spark 4.3 (looked for in November 2026: Delta 4.4.0 and Iceberg 1.12.0 are made for 4.1). What is shown
is that a flow then stops, says so, and has written nothing. When a release fits, this test fails: then it is time for one that
looks at the rows.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ottla.testing import Broker

PIPELINE = """
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long"), name="orders")
p.sql(orders, to=p.table("{table}", "{format}"), name="rows", query="SELECT * FROM orders")
"""
ARTIFACTS = {
    "delta": ("io.delta:delta-spark_4.1_2.13:4.4.0", "io.delta:delta-storage:4.4.0"),
    "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",),
}
CONF = {
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
    },
}


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_f82_jars_made_for_another_spark_stop_the_flow_with_a_clear_message(
    tmp_path: Path, ottla_broker: Broker, format: str
) -> None:
    sys.path.insert(0, str(Path(__file__).parents[1] / "compat"))
    from confluent_kafka import Producer
    from peers import single_jars

    source = f"table-jars-{format}"
    ottla_broker.create_topic(source, 1)
    producer = Producer({"bootstrap.servers": ottla_broker.bootstrap_servers, "log_level": 0})
    producer.produce(source, b'{"id": 1}')
    assert producer.flush(60) == 0
    lake = tmp_path / "lake"
    table = str(lake) if format == "delta" else "lake.shop.orders"
    file = tmp_path / "shop.py"
    file.write_text(PIPELINE.format(source=source, table=table, format=format))
    jars = ",".join(map(str, single_jars("spark-tables", ARTIFACTS[format])))
    conf = {**CONF[format], "spark.jars": jars, "spark.sql.catalog.lake.warehouse": str(lake)}
    words = [sys.executable, "-m", "ottla", "pipeline", "run", str(file), "--once", "-b", ottla_broker.bootstrap_servers]
    for name, value in conf.items():
        words += ["--conf", f"{name}={value}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=900, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"these jars of {format} were made for another Spark than" in done.stderr, done.stderr
    assert f"{file}:5" in done.stderr, done.stderr
    assert not list(lake.rglob("*.parquet"))
