"""An upgrade loses and doubles nothing, whatever is killed at whatever moment: itself, the old driver, the broker (F83).

Twenty rounds: every blow on Ottla and on Apache Kafka, on one of them with tables of PostgreSQL, on the other with topics only.
Five more have their source in another cluster. Two rounds of five are rollbacks. `OTTLA_TEST_ROUNDS=2` makes twice as many.
`OTTLA_TEST_BLOWS=broker,hold` makes only those whose name has one of these words in it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker
from tests.kit.databases import PostgreSQL
from tests.pipelines.kills.listening import Proxy
from tests.pipelines.kills.stage import PARTITIONS, AnyBroker
from tests.pipelines.kills.upgrades import BLOWS, ROLLBACK, UPGRADE, upgraded

ROUNDS = int(os.environ.get("OTTLA_TEST_ROUNDS", "1"))
WORDS = os.environ.get("OTTLA_TEST_BLOWS", "").split(",")
VERBS = (UPGRADE, UPGRADE, ROLLBACK, UPGRADE, ROLLBACK)
SETTINGS: dict[str, Any] = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(14_400)]


@contextmanager
def on_ottla() -> Iterator[tuple[AnyBroker, Proxy, Callable[[], str]]]:
    proxy = Proxy()
    try:
        with Broker({**SETTINGS, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}) as broker:
            host, _, port = broker._listeners[0].rpartition("//")[2].rpartition(":")
            proxy.upstream = host, int(port)
            yield broker, proxy, lambda: broker.log
    finally:
        proxy.close()


@contextmanager
def on_kafka() -> Iterator[tuple[AnyBroker, Proxy, Callable[[], str]]]:
    from tests.kit.peers import KAFKA_4, ApacheKafka

    proxy = Proxy()
    try:
        kafka = ApacheKafka(KAFKA_4, **SETTINGS)
        listeners = f"PLAINTEXT://127.0.0.1:{proxy.port},CONTROLLER://127.0.0.1:{kafka._controller_port}"
        kafka.settings["advertised.listeners"] = listeners
        proxy.upstream = "127.0.0.1", kafka.port
        with kafka:
            yield kafka, proxy, lambda: kafka.output
    finally:
        proxy.close()


def play(
    folder: Path,
    broker: AnyBroker,
    proxy: Proxy,
    names: list[str],
    database: PostgreSQL | None = None,
    source: Broker | None = None,
) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{proxy.port}", "log_level": 0})
    if source is not None:
        source.create_topic("in", PARTITIONS)
    here = ("out", "sums") if source is not None else ("in", "out", "sums")
    topics = [NewTopic(name, num_partitions=PARTITIONS, replication_factor=1) for name in here]
    for done in admin.create_topics(topics, operation_timeout=30).values():
        done.result(60)
    chosen = [name for name in names if any(word in name for word in WORDS)] * ROUNDS
    with upgraded(folder, broker, proxy, database, source) as stage:
        for number, name in enumerate(chosen):
            stage.round(name, number, VERBS[number % len(VERBS)])


FIRST, SECOND = list(BLOWS)[::2], list(BLOWS)[1::2]


def test_upgrades_with_tables_under_kills(tmp_path: Path) -> None:
    with on_ottla() as (broker, proxy, log), PostgreSQL() as database:
        play(tmp_path, broker, proxy, FIRST, database)
        assert "Traceback" not in log(), log()[-4000:]


def test_upgrades_of_topics_under_kills(tmp_path: Path) -> None:
    with on_ottla() as (broker, proxy, log):
        play(tmp_path, broker, proxy, SECOND)
        assert "Traceback" not in log(), log()[-4000:]


def test_upgrades_of_a_source_in_another_cluster_under_kills(tmp_path: Path) -> None:
    """Where the new version goes on there is only in the checkpoint of the old one."""
    with on_ottla() as (broker, proxy, log), Broker() as source:
        play(tmp_path, broker, proxy, FIRST, source=source)
        assert "Traceback" not in log(), log()[-4000:]


@pytest.mark.java
def test_upgrades_with_tables_under_kills_on_apache_kafka(tmp_path: Path) -> None:
    """The switch needs nothing of our broker."""
    with on_kafka() as (broker, proxy, _), PostgreSQL() as database:
        play(tmp_path, broker, proxy, SECOND, database)


@pytest.mark.java
def test_upgrades_of_topics_under_kills_on_apache_kafka(tmp_path: Path) -> None:
    with on_kafka() as (broker, proxy, _):
        play(tmp_path, broker, proxy, FIRST)
