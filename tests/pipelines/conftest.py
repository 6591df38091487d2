"""One Spark and one broker for all tests here that need them."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from ottla.pipelines import graph, loading, project, running, session
from tests.kit.databases import Database, MariaDB, PostgreSQL, driver_jars
from tests.kit.wait import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing import Broker

# Spark's JVMs live for minutes here: what the optimizing compiler spends on them, a third of their time, never comes back.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

ReadTopic = Callable[[str, str], list[Any]]
"""A broker's address, a topic."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Started as a pipeline starts it, so what exactly once needs is set."""
    conf = {"spark.sql.shuffle.partitions": "2", "spark.default.parallelism": "2"}
    conf["spark.jars"] = ",".join(map(str, driver_jars()))
    conf["spark.sql.warehouse.dir"] = str(tmp_path_factory.mktemp("warehouse"))
    found = session.start("tests", "local[2]", conf)
    jvm: Any = found._jvm
    # Derby, which some tests take for a database, logs where one stands.
    jvm.java.lang.System.setProperty("derby.stream.error.file", str(tmp_path_factory.mktemp("derby") / "derby.log"))
    yield found
    found.stop()
    gateway: Any = found.sparkContext._gateway
    # PySpark leaves its JVM to the end of the process, and with it a pipe that Python complains about.
    if gateway is not None:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait(180)


@pytest.fixture(scope="session")
def postgresql() -> Iterator[Database]:
    with PostgreSQL() as server:
        yield server


@pytest.fixture(scope="session")
def mariadb() -> Iterator[Database]:
    with MariaDB() as server:
        yield server


def read_topic(bootstrap_servers: str, topic: str) -> list[Any]:
    """All committed records of a topic up to its end now, as confluent_kafka's messages."""
    from confluent_kafka import Consumer, KafkaError, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "reader",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    try:
        count = len(consumer.list_topics(topic, 60).topics[topic].partitions)
        consumer.assign([TopicPartition(topic, number, 0) for number in range(count)])
        found: list[Any] = []
        ended: set[Any] = set()
        deadline = time.monotonic() + 60
        while len(ended) < count:
            assert time.monotonic() < deadline, f"{topic} did not end"
            message = consumer.poll(0.5)
            if message is None:
                continue
            error = message.error()
            if error is None:
                found.append(message)
            elif error.code() == KafkaError._PARTITION_EOF:  # a lost connection comes as an error too, and mends itself
                ended.add(message.partition())
        return found
    finally:
        consumer.close()


@pytest.fixture(name="read_topic")
def _read_topic() -> ReadTopic:
    """For tests that have a broker and no Spark of this process."""
    return read_topic


class Shop:
    """A pipeline's file, its settings, and the topics around it."""

    def __init__(self, folder: Path, broker: Broker, spark: SparkSession, prefix: str) -> None:
        self.folder, self.broker, self.spark, self.prefix = folder, broker, spark, prefix

    def topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> str:
        full = f"{self.prefix}{name}"
        self.broker.create_topic(full, partitions, config)
        return full

    def produce(self, topic: str, records: list[Any], **more: Any) -> None:
        """JSON values, or bytes as they are; a pair is (key, value)."""
        from confluent_kafka import Producer

        producer = Producer({"bootstrap.servers": self.broker.bootstrap_servers, "log_level": 0})
        for record in records:
            key, value = record if isinstance(record, tuple) else (None, record)
            if value is not None and not isinstance(value, bytes):
                value = json.dumps(value).encode()
            producer.produce(topic, key=key, value=value, **more)
        assert producer.flush(60) == 0

    def read(self, topic: str) -> list[Any]:
        return read_topic(self.broker.bootstrap_servers, topic)

    def values(self, topic: str) -> list[Any]:
        return [json.loads(message.value()) for message in self.read(topic)]

    def pipeline(self, text: str, name: str = "shop") -> Path:
        file = self.folder / f"{name}.py"
        file.write_text(text)
        return file

    def flows(self, file: Path, *, once: bool = True, storage: str | None = None, **flags: Any) -> running.PipelineRun:
        settings = project.override(
            project.read(file),
            conf=None,
            bootstrap_servers=self.broker.bootstrap_servers,
            storage=storage or str(self.folder / "storage"),
            **{"trigger": "100 ms", **flags},
        )
        return running.PipelineRun(self.spark, settings, graph.plan(loading.load(file)), once=once)

    def run(self, file: Path, **more: Any) -> running.PipelineRun:
        """What is there now, until it is done."""
        with self.flows(file, **more) as flows:
            flows.start()
            until(lambda: not flows.running, "the pipeline ends", 300, every_s=0, meanwhile=lambda: flows.wait(1))
            flows.wait(0)
        return flows


@pytest.fixture
def shop(tmp_path: Path, ottla_broker: Broker, spark: SparkSession, request: pytest.FixtureRequest) -> Shop:
    return Shop(tmp_path, ottla_broker, spark, f"t{os.getpid()}{abs(hash(request.node.name)) % 100_000}.")
