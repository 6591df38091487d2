"""A broker whose groups of the new protocol move quickly, and what the tests of all clients need."""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Iterator
from typing import Any, Self

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit.subject import Subject, running, soon

_numbers = itertools.count()

SETTINGS: dict[str, Any] = {
    "group_initial_rebalance_delay_ms": 0,
    "group_min_session_timeout_ms": 100,
    "offsets_topic_replication_factor": 1,
    "group_consumer_assignment_interval_ms": 0,
    "group_consumer_heartbeat_interval_ms": 200,
    "group_consumer_min_heartbeat_interval_ms": 200,
    # A member that restarts must be back in that time, and one that is slow on a busy machine is not one that died.
    "group_consumer_session_timeout_ms": 10_000,
    "group_consumer_min_session_timeout_ms": 3000,
}


@pytest.fixture(scope="session")
def subject848() -> Iterator[Subject]:
    with running(**SETTINGS) as broker:
        yield broker


@pytest.fixture
def servers(subject848: Subject) -> str:
    return subject848.bootstrap_servers


@pytest.fixture
def admin(servers: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": servers})


@pytest.fixture
def group() -> str:
    return f"group848-{next(_numbers)}-{os.getpid()}"


def produce(servers: str, topic: str, partitions: int, each: int) -> None:
    """`<partition>:<number>` in each partition, after what is there."""
    producer = Producer({"bootstrap.servers": servers})
    for partition in range(partitions):
        for number in range(each):
            producer.produce(topic, f"{partition}:{number}".encode(), partition=partition)
    assert producer.flush(60) == 0


@pytest.fixture
def filled(servers: str, admin: AdminClient) -> Callable[..., str]:
    """Makes a topic with `each` records in every partition."""

    def make(partitions: int = 6, each: int = 20, name: str | None = None) -> str:
        topic = name or f"t848-{next(_numbers)}-{os.getpid()}"
        (created,) = admin.create_topics([NewTopic(topic, partitions, 1)]).values()
        created.result(60)
        assert soon(lambda: topic in admin.list_topics(timeout=60).topics)
        produce(servers, topic, partitions, each)
        return topic

    return make


class Ledger:
    """Who owns what, as the members themselves say. A partition that two of them own at once is noted (G05)."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.owners: dict[tuple[str, int], str] = {}
        self.twice: list[str] = []
        self.read: set[tuple[str, int, int]] = set()

    def gains(self, name: str, partitions: Any) -> None:
        with self._lock:
            for partition in partitions:
                key = (partition.topic, partition.partition)
                if self.owners.get(key, name) != name:
                    self.twice.append(f"{key} of {self.owners[key]} given to {name}")
                self.owners[key] = name

    def loses(self, name: str, partitions: Any = None) -> None:
        with self._lock:
            gone = None if partitions is None else {(p.topic, p.partition) for p in partitions}
            for key, owner in list(self.owners.items()):
                if owner == name and (gone is None or key in gone):
                    del self.owners[key]

    def of(self, name: str) -> set[tuple[str, int]]:
        with self._lock:
            return {key for key, owner in self.owners.items() if owner == name}

    def numbers(self, name: str) -> set[int]:
        return {partition for _, partition in self.of(name)}


class Reader:
    """One confluent-kafka consumer with a thread that polls."""

    def __init__(self, ledger: Ledger, name: str, config: dict[str, Any], topics: list[str]) -> None:
        self.ledger, self.name = ledger, name
        self.consumer = Consumer(config)
        self.errors: list[str] = []
        self._stop = threading.Event()
        self.consumer.subscribe(topics, on_assign=self._assign, on_revoke=self._revoke, on_lost=self._lost)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _assign(self, consumer: Consumer, partitions: Any) -> None:
        self.ledger.gains(self.name, partitions)

    def _revoke(self, consumer: Consumer, partitions: Any) -> None:
        self.ledger.loses(self.name, partitions)

    def _lost(self, consumer: Consumer, partitions: Any) -> None:
        self.ledger.loses(self.name, partitions)

    def _run(self) -> None:
        while not self._stop.is_set():
            message = self.consumer.poll(0.05)
            if message is None:
                continue
            if message.error():
                self.errors.append(str(message.error()))
                continue
            self.ledger.read.add((message.topic(), message.partition(), message.offset()))  # type: ignore[arg-type]

    @property
    def owned(self) -> set[int]:
        return self.ledger.numbers(self.name)

    def close(self) -> None:
        if not self._stop.is_set():
            self._stop.set()
            self._thread.join(60)
            self.consumer.close()
            self.ledger.loses(self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@pytest.fixture
def ledger() -> Ledger:
    return Ledger()


@pytest.fixture
def reader(servers: str, group: str, ledger: Ledger) -> Iterator[Callable[..., Reader]]:
    """Starts a member of the new protocol; `protocol="classic"` of the old one."""
    started: list[Reader] = []

    def start(name: str, *topics: str, protocol: str = "consumer", **options: Any) -> Reader:
        config = {
            "bootstrap.servers": servers,
            "group.id": group,
            "group.protocol": protocol,
            "client.id": name,
            "auto.offset.reset": "earliest",
            "auto.commit.interval.ms": 200,
            "topic.metadata.refresh.interval.ms": 1000,
            **{key.replace("_", "."): value for key, value in options.items()},
        }
        if protocol == "classic":
            config |= {"session.timeout.ms": 30_000, "heartbeat.interval.ms": 200}
        started.append(Reader(ledger, name, config, list(topics)))
        return started[-1]

    yield start
    for one in started:
        one.close()
