"""A compacted topic of a running broker: confluent-kafka and kcat see the newest of each key, and no gap stops them (F13)."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit.peers import kcat
from tests.kit.subject import Subject, running
from tests.kit.wait import until

TOPIC = "compacted"
KEYS = 40


@pytest.fixture(scope="module")
def cleaning() -> Iterator[Subject]:
    settings: dict[str, Any] = {
        "log.cleaner.backoff.ms": 100,
        "log.cleaner.min.cleanable.ratio": 0.01,
        "log.initial.task.delay.ms": 100,
    }
    with running(**settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def newest(cleaning: Subject) -> dict[bytes, bytes | None]:
    """Produces with every codec; what a reader must know at the end."""
    admin = AdminClient({"bootstrap.servers": cleaning.bootstrap_servers})
    config = {"cleanup.policy": "compact", "segment.bytes": "1048576", "segment.ms": "500"}
    (created,) = admin.create_topics([NewTopic(TOPIC, 1, 1, config=config)]).values()
    created.result(60)
    expected: dict[bytes, bytes | None] = {}
    for number, codec in enumerate(("none", "gzip", "snappy", "lz4", "zstd", "none")):
        producer = Producer(
            {"bootstrap.servers": cleaning.bootstrap_servers, "compression.type": codec, "enable.idempotence": bool(number % 2)}
        )
        for record in range(400):
            key = b"key-%d" % (record % KEYS)
            value = None if record % 37 == 0 else b"%s-%d" % (codec.encode(), record)
            expected[key] = value
            producer.produce(TOPIC, value, key)
            if record % 20 == 0:
                producer.flush()
        assert producer.flush(60) == 0
        time.sleep(0.6)  # the next append rolls: segment.ms
    return expected


def read_all(bootstrap_servers: str) -> list[tuple[int, bytes | None, bytes | None]]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "x", "check.crcs": True, "enable.partition.eof": True}
    )
    consumer.assign([TopicPartition(TOPIC, 0, 0)])
    found: list[Any] = []
    while True:
        (message,) = consumer.consume(1, timeout=60) or [None]  # type: ignore[list-item]
        assert message is not None
        if message.error() is not None:
            consumer.close()
            return found
        found.append((message.offset(), message.key(), message.value()))


def test_a_consumer_sees_the_newest_of_each_key(cleaning: Subject, newest: dict[bytes, bytes | None]) -> None:
    def cleaned() -> list[tuple[int, bytes, bytes | None]]:
        found = read_all(cleaning.bootstrap_servers)
        assert [offset for offset, _, _ in found] == sorted({offset for offset, _, _ in found})
        assert {key: value for _, key, value in found} == newest
        # The last 400 may be in the active segment, which is never cleaned.
        return found if len(found) <= 400 + KEYS else []  # type: ignore[return-value]

    assert until(cleaned, every_s=0.2)[0][0] > 0


def test_kcat_reads_over_the_gaps_from_any_offset(cleaning: Subject, newest: dict[bytes, bytes | None]) -> None:
    servers = cleaning.bootstrap_servers
    found = read_all(servers)
    for start in (0, 1, found[0][0], found[3][0] + 1, found[-1][0]):
        command = [kcat(), "-b", servers, "-C", "-t", TOPIC, "-p", "0", "-o", str(start), "-e", "-q", "-f", "%o\n"]
        while True:
            before = read_all(servers)
            done = subprocess.run(command, capture_output=True, timeout=180)
            assert done.returncode == 0, done.stderr.decode()
            if read_all(servers) == before:  # and not compacted once more meanwhile
                break
        offsets = [int(line) for line in done.stdout.split()]
        assert offsets == [offset for offset, _, _ in before if offset >= start]
