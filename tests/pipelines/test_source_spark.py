"""format("ottla") in a real Spark: found without registration, batch and stream, its plan and its progress (F78, F80)."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException

from ottla.client.blocking import Client
from ottla.client.offsets import committed_offsets
from ottla.client.options import plain_options
from ottla.pipelines.data_source.read_limits import ARE_KNOWN

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Broker

_made = iter(range(10_000))


@pytest.fixture
def topic(ottla_broker: Broker) -> str:
    name = f"src{next(_made)}-{os.getpid()}"
    ottla_broker.create_topic(name, 2)
    return name


@pytest.fixture
def produce(ottla_broker: Broker) -> Callable[..., None]:
    def send(topic: str, numbers: range) -> None:
        producer = Producer({"bootstrap.servers": ottla_broker.bootstrap_servers, "log_level": 0})
        for number in numbers:
            headers = [("number", b"%d" % number)] if number % 2 else None
            producer.produce(topic, b"%d" % number, None if number % 3 == 0 else b"k%d" % number, number % 2, headers=headers)  # type: ignore[arg-type]
        assert producer.flush(60) == 0

    return send


@pytest.fixture
def options(ottla_broker: Broker, topic: str) -> dict[str, str]:
    return {"kafka.bootstrap.servers": ottla_broker.bootstrap_servers, "subscribe": topic}


@pytest.fixture
def queries(spark: SparkSession) -> Iterator[None]:
    yield
    for query in spark.streams.active:
        query.stop()


def test_f78_a_batch(spark: SparkSession, topic: str, options: dict[str, str], produce: Callable[..., None]) -> None:
    produce(topic, range(200))
    frame = spark.read.format("ottla").options(**options, includeHeaders="true", minPartitions="5").load()
    assert frame.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int,"
        "headers:array<struct<key:string,value:binary>>>"
    )
    found = sorted(frame.collect(), key=lambda row: int(row["value"]))
    assert [int(row["value"]) for row in found] == list(range(200))
    for number, row in enumerate(found):
        assert row["key"] == (None if number % 3 == 0 else bytearray(b"k%d" % number))
        assert (row["topic"], row["partition"], row["offset"]) == (topic, number % 2, number // 2)
        wanted = [("number", bytearray(b"%d" % number))] if number % 2 else None
        assert (row["headers"] and [tuple(header) for header in row["headers"]]) == wanted
    assert frame.groupBy("partition").count().orderBy("partition").collect() == [(0, 100), (1, 100)]
    only = spark.read.format("ottla").options(**options).schema("value string, offset long").load()
    assert only.where("offset = 7").select("value").orderBy("value").collect() == [("14",), ("15",)]


def test_f78_an_empty_topic_is_an_empty_frame(spark: SparkSession, options: dict[str, str]) -> None:
    assert spark.read.format("ottla").options(**options).load().count() == 0


def test_f78_f80_available_now_then_again_then_more(
    spark: SparkSession,
    topic: str,
    options: dict[str, str],
    produce: Callable[..., None],
    tmp_path: Path,
    queries: None,
    ottla_broker: Broker,
) -> None:
    produce(topic, range(100))
    group = f"group-{topic}"
    seen: list[int] = []

    def run() -> list[int]:
        sizes: list[int] = []

        def keep(frame: Any, batch_id: int) -> None:
            numbers = [int(row[0]) for row in frame.selectExpr("CAST(value AS STRING)").collect()]
            sizes.append(len(numbers))
            seen.extend(numbers)

        more = {"startingOffsets": "earliest", "kafka.group.id": group, **({"maxOffsetsPerTrigger": "40"} if ARE_KNOWN else {})}
        stream = spark.readStream.format("ottla").options(**{**options, **more}).load()
        writer = stream.writeStream.foreachBatch(keep).option("checkpointLocation", str(tmp_path / "checkpoint"))
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(300)
        for progress in query.recentProgress:
            (source,) = json.loads(progress.json)["sources"]
            assert source["endOffset"][topic].keys() == {"0", "1"}
            assert source["latestOffset"] is not None
        return sizes

    assert run() == ([40, 40, 20] if ARE_KNOWN else [100])
    assert run() == []
    produce(topic, range(100, 130))
    assert run() == [30]
    assert sorted(seen) == list(range(130))
    with Client(plain_options(ottla_broker.bootstrap_servers)) as client:
        assert {where.partition: entry.offset for where, entry in committed_offsets(client, group).items()} == {0: 65, 1: 65}


def test_f78_a_running_stream(
    spark: SparkSession, topic: str, options: dict[str, str], produce: Callable[..., None], tmp_path: Path, queries: None
) -> None:
    name = f"memory{next(_made)}"
    stream = spark.readStream.format("ottla").options(**options, startingOffsets="earliest").schema("value string").load()
    writer = stream.writeStream.format("memory").queryName(name).option("checkpointLocation", str(tmp_path))
    query = writer.trigger(processingTime="50 milliseconds").start()
    for first in (0, 10):
        produce(topic, range(first, first + 10))
        until = time.monotonic() + 300
        while spark.table(name).count() < first + 10:
            assert query.isActive, query.exception()
            assert time.monotonic() < until
            query.processAllAvailable()
    query.stop()
    assert sorted(int(row[0]) for row in spark.table(name).collect()) == list(range(20))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"startingOffsets": "newest"}, "option startingOffsets: 'newest' is not possible"),
        ({"subscribes": "x"}, "did you mean subscribe?"),
        ({"kafka.security.protocol": "TLS"}, "it is one of PLAINTEXT, SSL"),
    ],
)
def test_f78_a_wrong_option_is_said_when_the_frame_is_made(
    spark: SparkSession, options: dict[str, str], wrong: dict[str, str], says: str
) -> None:
    for reader in (spark.read, spark.readStream):
        with pytest.raises(PySparkException) as refused:
            reader.format("ottla").options(**{**options, **wrong}).load()
        assert says in str(refused.value)


def test_f78_a_topic_that_is_not_there(spark: SparkSession, options: dict[str, str], tmp_path: Path, queries: None) -> None:
    missing = {**options, "subscribe": "no-such-topic"}
    with pytest.raises(PySparkException, match="topic no-such-topic does not exist"):
        spark.read.format("ottla").options(**missing).load().count()
    query = (
        (spark.readStream.format("ottla").options(**missing).load().writeStream.format("noop"))
        .option("checkpointLocation", str(tmp_path))
        .start()
    )
    with pytest.raises(PySparkException, match="topic no-such-topic does not exist"):
        query.awaitTermination(300)
