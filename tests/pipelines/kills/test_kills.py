"""F79: exactly once, whatever is killed at whatever moment: driver, worker, broker; with a zombie, and with a timeout.

`OTTLA_TEST_ROUNDS=20` makes twenty rounds of every blow; without it the slow test makes two of each, more than twenty in all.
`OTTLA_TEST_BLOWS=zombie,timeout` makes only those whose name has one of these words in it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.pipelines.kills.listening import Proxy
from tests.pipelines.kills.stage import BLOWS, BLOWS_OF_TWO_CLUSTERS, PARTITIONS, Stage, staged

ROUNDS = int(os.environ.get("OTTLA_TEST_ROUNDS", "2"))
# By Kafka's names. Timed out transactions are looked for often.
SETTINGS: dict[str, Any] = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}
WORDS = os.environ.get("OTTLA_TEST_BLOWS", "").split(",")
SLOW = tuple(name for name in BLOWS if any(word in name for word in WORDS)) * ROUNDS
NORMAL = ("driver before EndTxn", "driver after EndTxn", "worker at Produce", "broker after EndTxn")


@contextmanager
def on_ottla(folder: Path, *, other_source: bool = False) -> Iterator[Stage]:
    from ottla.testing import Broker

    proxy = Proxy()
    advertised = {"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
    try:
        with Broker({**SETTINGS, **advertised}) as broker, Broker() if other_source else nullcontext() as source:
            host, _, port = broker._listeners[0].rpartition("//")[2].rpartition(":")
            proxy.upstream = host, int(port)
            make_topics(proxy.port, "out", *([] if source is not None else ["in"]))
            if source is not None:
                source.create_topic("in", PARTITIONS)
            with staged(folder, broker, proxy, lambda: broker.log, source) as stage:
                yield stage
            assert "Traceback" not in broker.log, broker.log[-4000:]
    finally:
        proxy.close()


@contextmanager
def on_kafka(folder: Path) -> Iterator[Stage]:
    from tests.kit.peers import KAFKA_4, ApacheKafka

    proxy = Proxy()
    try:
        kafka = ApacheKafka(KAFKA_4, **SETTINGS)
        kafka.settings["advertised.listeners"] = (
            f"PLAINTEXT://127.0.0.1:{proxy.port},CONTROLLER://127.0.0.1:{kafka._controller_port}"
        )
        proxy.upstream = "127.0.0.1", kafka.port
        with kafka:
            make_topics(proxy.port, "in", "out")
            with staged(folder, kafka, proxy, lambda: kafka.output) as stage:
                yield stage
    finally:
        proxy.close()


def make_topics(port: int, *names: str) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{port}", "log_level": 0})
    topics = [NewTopic(name, num_partitions=PARTITIONS, replication_factor=1) for name in names]
    for done in admin.create_topics(topics, operation_timeout=30).values():
        done.result(60)


def play(stage: Stage, blows: tuple[str, ...]) -> None:
    for name in blows:
        stage.strike(name)


@pytest.mark.timeout(7200)
def test_a_driver_a_worker_and_the_broker_are_killed(tmp_path: Path) -> None:
    with on_ottla(tmp_path) as stage:
        play(stage, NORMAL)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_the_source_is_in_another_cluster(tmp_path: Path) -> None:
    with on_ottla(tmp_path, other_source=True) as stage:
        play(stage, (*BLOWS_OF_TWO_CLUSTERS, "driver after EndTxn", "broker after EndTxn") * ROUNDS)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_more_than_twenty_rounds(tmp_path: Path) -> None:
    with on_ottla(tmp_path) as stage:
        play(stage, SLOW)


@pytest.mark.slow
@pytest.mark.java
@pytest.mark.timeout(7200)
def test_more_than_twenty_rounds_on_apache_kafka(tmp_path: Path) -> None:
    """The sink needs nothing of our broker."""
    with on_kafka(tmp_path) as stage:
        play(stage, SLOW)
