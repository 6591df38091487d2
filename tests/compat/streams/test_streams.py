"""Kafka Streams' word count with `exactly_once_v2` (F66): every word counted once, while broker and application are killed.

Streams makes its own topics (repartition, changelog), writes with one transactional producer a thread, keeps its state in a
changelog that it reads back after a death, and deletes what it has read from the repartition topic.
"""

from __future__ import annotations

import random
import struct
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from ottla.testing import Broker
from tests.kit.peers import KAFKA_4, java_command, streams_jars
from tests.kit.subject import chosen

pytestmark = [pytest.mark.java, pytest.mark.skipif(chosen() != "ottla", reason="kills the broker under test")]

PARTITIONS = 2
BROKER = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 1000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 200,
}
WORDS = [f"word{number}" for number in range(40)]
SOURCE = Path(__file__).parent / "WordCount.java"


@contextmanager
def application(servers: str, path: Path, name: str) -> Iterator[subprocess.Popen[bytes]]:
    """Ends with its input; a state directory of its own, so that a successor has only the changelog to go by."""
    command = java_command(KAFKA_4, str(SOURCE), servers, "lines", "counts", str(path / name), jars=streams_jars())
    with (path / f"{name}.log").open("wb") as log:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


class Counts:
    """What the application says, read as it should be read: only what is committed."""

    def __init__(self, servers: str) -> None:
        self.seen: dict[str, list[int]] = {word: [] for word in WORDS}
        self.total = 0
        self._consumer = Consumer(
            {"bootstrap.servers": servers, "group.id": "r", "isolation.level": "read_committed", "enable.auto.commit": False}
        )
        self._consumer.assign([TopicPartition("counts", partition, 0) for partition in range(PARTITIONS)])

    def read_until(self, enough: Callable[[], bool], what: Callable[[], str], within_s: float = 300) -> None:
        deadline = time.monotonic() + within_s
        while not enough():
            assert time.monotonic() < deadline, f"{self.total} counts\n{what()}"
            for message in self._consumer.consume(500, 0.2):
                if message.error() is None:
                    self.seen[(message.key() or b"").decode()].append(struct.unpack(">q", message.value() or b"")[0])
                    self.total += 1

    def close(self) -> None:
        self._consumer.close()


def counted(servers: str, path: Path, blow: Callable[[], None], said_by_brokers: Callable[[], str]) -> None:
    """The topics are there; a blow in the midst of it, and the application is killed and has a successor."""
    chance = random.Random(4)
    expected: Counter[str] = Counter()
    producer = Producer({"bootstrap.servers": servers, "enable.idempotence": True, "linger.ms": 5, "log_level": 0})

    def write(lines: int) -> None:
        for number in range(lines):
            words = chance.choices(WORDS, k=5)
            expected.update(words)
            producer.produce("lines", " ".join(words).encode(), partition=number % PARTITIONS)
            producer.poll(0)

    def said() -> str:
        return "\n".join(log.read_text()[-2000:] for log in sorted(path.glob("*.log"))) + said_by_brokers()[-2000:]

    counts = Counts(servers)
    try:
        with application(servers, path, "first") as first:
            write(1000)
            counts.read_until(lambda: counts.total > 500, said)
            write(1000)
            blow()
            write(1000)
            counts.read_until(lambda: counts.total > 7000, said)
            first.kill()
        with application(servers, path, "second") as second:
            write(1000)
            assert producer.flush(60) == 0
            counts.read_until(lambda: counts.total >= expected.total(), said)
            assert second.stdin is not None
            second.stdin.close()
            assert second.wait(120) == 0, said()
    finally:
        counts.close()
    # Each word's counts are 1, 2, 3, ... to the end: nothing is missing, nothing twice, nothing out of order.
    assert counts.seen == {word: list(range(1, expected[word] + 1)) for word in WORDS}
    assert "ended in order" in (path / "second.log").read_text()
    admin = AdminClient({"bootstrap.servers": servers, "log_level": 0})
    topics = admin.list_topics(timeout=60).topics
    assert {"word-count-counts-changelog", "word-count-counts-repartition"} <= set(topics)


def test_word_count_exactly_once(tmp_path: Path) -> None:
    with Broker(BROKER) as broker:
        for topic in ("lines", "counts"):
            broker.create_topic(topic, PARTITIONS)

        def blow() -> None:
            broker.kill()
            broker.start()

        counted(broker.bootstrap_servers, tmp_path, blow, lambda: broker.log)
        assert "Traceback" not in broker.log, broker.log[-4000:]
