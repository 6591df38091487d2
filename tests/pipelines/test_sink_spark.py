"""Writing with format("ottla") in a real Spark: batch and stream, all columns, what is refused (F78)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from ottla.client.options import InvalidOption
from ottla.pipelines.data_source.sink_options import sink_options

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Broker

BASE = {"kafka.bootstrap.servers": "a:1", "topic": "t"}


def test_f78_rows_are_records(spark: SparkSession, ottla_broker: Broker, ottla_topic: str, tmp_path: Path) -> None:
    servers = {"kafka.bootstrap.servers": ottla_broker.bootstrap_servers}
    other = f"{ottla_topic}-other"
    ottla_broker.create_topic(other, 3)
    headers = "array(named_struct('key', 'h', 'value', CAST('x' AS binary))) AS headers"
    rows = spark.range(100, numPartitions=2).selectExpr(
        "CAST(id AS string) AS key", "if(id = 5, null, CAST(id * id AS string)) AS value", headers,
        f"if(id < 60, '{ottla_topic}', '{other}') AS topic", "timestamp_millis(1700000000000 + id) AS timestamp",
    )  # fmt: skip
    rows.write.format("ottla").options(**servers).mode("append").save()

    def read(topic: str) -> list[tuple[int, object, str, int]]:
        frame = spark.read.format("ottla").options(**servers).option("subscribe", topic).option("includeHeaders", "true").load()
        found = frame.selectExpr(
            "CAST(CAST(key AS string) AS int)",
            "CAST(value AS string)",
            "CAST(headers[0].value AS string)",
            "unix_millis(timestamp)",
        )
        return sorted(map(tuple, found.collect()))

    wanted = [(n, None if n == 5 else str(n * n), "x", 1700000000000 + n) for n in range(100)]
    assert read(ottla_topic) == wanted[:60]
    assert read(other) == wanted[60:]

    stream = spark.readStream.format("ottla").options(**servers).option("subscribe", ottla_topic)
    copy = stream.option("startingOffsets", "earliest").load().selectExpr("key", "value", "0 AS partition")
    query = copy.writeStream.format("ottla").options(**servers).option("topic", other).option("checkpointLocation", str(tmp_path))
    query.trigger(availableNow=True).start().awaitTermination()
    frame = spark.read.format("ottla").options(**servers).option("assign", f'{{"{other}": [0]}}').load()
    assert frame.where("timestamp > timestamp_millis(1700000001000)").count() == 60


@pytest.mark.parametrize(
    ("rows", "mode", "reason"),
    [
        ("'k' AS key", "append", "a record has a column value"),
        ("1 AS value", "append", "value int"),
        ("'v' AS value, 1 AS offset", "append", "offset int"),
        ("'v' AS value", "overwrite", "only added"),
        ("'v' AS value, 9 AS partition", "append", "names partition 9"),
    ],
)
def test_rows_that_are_no_records(
    spark: SparkSession, ottla_broker: Broker, ottla_topic: str, rows: str, mode: str, reason: str
) -> None:
    writer = spark.sql(f"SELECT {rows}").write.format("ottla").option("kafka.bootstrap.servers", ottla_broker.bootstrap_servers)
    with pytest.raises(Exception, match=reason):
        writer.option("topic", ottla_topic).mode(mode).save()


@pytest.mark.parametrize(
    "options",
    [
        {"Topics": "x"},
        {"subscribe": "t"},
        {"kafka.acks": "1"},
        {"kafka.compression.type": "lzma"},
        {"registry.subject": "s"},
        {"registry.url": "http://r", "registry.version": "0"},
        {"registry.url": "http://r", "registry.schema.header": "yes"},
        {"registry.url": "http://r", "registry.schema.type": "XML"},
        {"registry.url": "http://r", "topic": ""},
    ],
)
def test_options_that_cannot_be(options: dict[str, str]) -> None:
    with pytest.raises(InvalidOption):
        sink_options({**BASE, **options})


def test_options_of_a_sink() -> None:
    found = sink_options({**BASE, "Registry.Url": "http://r", "kafka.acks": "all", "checkpointLocation": "/x"})
    assert found.value is not None
    assert (found.topic, found.value.subject, found.value.version, found.key) == ("t", "t-value", "latest", None)
