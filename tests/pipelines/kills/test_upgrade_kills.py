"""An upgrade loses and doubles nothing, whatever is killed at whatever moment: itself, the old driver, the broker (F83).

`OTTLA_TEST_ROUNDS=2` makes two rounds of every blow, twenty in all; without it the slow test makes one of each.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit.databases import PostgreSQL
from tests.pipelines.kills.listening import Proxy
from tests.pipelines.kills.stage import PARTITIONS, AnyBroker
from tests.pipelines.kills.upgrades import BLOWS, upgraded

ROUNDS = int(os.environ.get("OTTLA_TEST_ROUNDS", "1"))
WORDS = os.environ.get("OTTLA_TEST_BLOWS", "").split(",")
CHOSEN = tuple(name for name in BLOWS if any(word in name for word in WORDS)) * ROUNDS
SETTINGS: dict[str, Any] = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": "500"}

pytestmark = [pytest.mark.slow, pytest.mark.timeout(14_400)]


@contextmanager
def on_ottla() -> Iterator[tuple[AnyBroker, Proxy, Callable[[], str]]]:
    from ottla.testing import Broker

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


def play(folder: Path, broker: AnyBroker, proxy: Proxy) -> None:
    admin = AdminClient({"bootstrap.servers": f"127.0.0.1:{proxy.port}", "log_level": 0})
    topics = [NewTopic(name, num_partitions=PARTITIONS, replication_factor=1) for name in ("in", "out", "sums")]
    for done in admin.create_topics(topics, operation_timeout=30).values():
        done.result(60)
    with PostgreSQL() as database, upgraded(folder, broker, proxy, database) as stage:
        for number, name in enumerate(CHOSEN):
            stage.round(name, number)


def test_upgrades_under_kills(tmp_path: Path) -> None:
    with on_ottla() as (broker, proxy, log):
        play(tmp_path, broker, proxy)
        assert "Traceback" not in log(), log()[-4000:]


@pytest.mark.java
def test_upgrades_under_kills_on_apache_kafka(tmp_path: Path) -> None:
    """The switch needs nothing of our broker."""
    with on_kafka() as (broker, proxy, _):
        play(tmp_path, broker, proxy)
