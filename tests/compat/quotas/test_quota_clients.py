"""Real clients under a quota come down to it: librdkafka and the Java client, producing and consuming (QU02, QU03).

Rates are judged roughly: the machine may be busy, and the first seconds' worth passes at once.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.cli.connection import Connection
from ottla.cli.plain_request import call
from ottla.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from tests.kit.peers import KAFKA_4, run_tool
from tests.kit.subject import EITHER, Subject, running, soon

LIMIT = 200_000
"""Bytes per second."""
RECORD = bytes(1000)
RECORDS = 2_000
"""Ten seconds' worth, of which the first two pass at once."""
SETTINGS = {"quota_window_num": 3}

pytestmark = [pytest.mark.java, pytest.mark.slow]


@pytest.fixture(scope="module", params=EITHER)
def limited(request: pytest.FixtureRequest) -> Iterator[Subject]:
    with running(request.param, **SETTINGS) as subject:
        rates = ("producer_byte_rate", "consumer_byte_rate")
        entries = [
            EntryData(
                entity=[EntityData(entity_type="client-id", entity_name=name)],
                ops=[OpData(key=rate, value=LIMIT) for rate in rates],
            )
            for name in ("slow-librdkafka", "slow-java")
        ]
        asked = AlterClientQuotasRequest(entries=entries)
        done = call(Connection(subject.bootstrap_servers), "alter_client_quotas", 1, asked, AlterClientQuotasResponse)
        assert [entry.error_code for entry in done.entries] == [0, 0]
        admin = AdminClient({"bootstrap.servers": subject.bootstrap_servers})
        for future in admin.create_topics([NewTopic(name, 1, 1) for name in ("full", "librdkafka", "java")]).values():
            future.result(60)
        assert soon(lambda: {"full", "librdkafka", "java"} <= admin.list_topics(timeout=60).topics.keys())
        # A batch larger than what the whole samples allow would never be fetched, in Kafka neither.
        fast = Producer({"bootstrap.servers": subject.bootstrap_servers, "client.id": "fast", "batch.size": 50_000})
        began = time.monotonic()
        _produce(fast, "full")
        assert RECORDS * len(RECORD) / (time.monotonic() - began) > LIMIT * 2, "a client without quota is not held up"
        yield subject


def _produce(producer: Producer, topic: str) -> None:
    for _ in range(RECORDS):
        producer.produce(topic, RECORD)
        producer.poll(0)
    assert producer.flush(120) == 0


def check_rate(kind: str, bytes_per_second: float) -> None:
    print(f"{kind}: {bytes_per_second / LIMIT:.2f} of the limit")
    assert 0.4 < bytes_per_second / LIMIT < 2, kind


def test_librdkafka_produces_at_the_limit(limited: Subject) -> None:
    throttled: list[float] = []
    producer = Producer(
        {
            "bootstrap.servers": limited.bootstrap_servers,
            "client.id": "slow-librdkafka",
            "batch.size": 50_000,
            "throttle_cb": lambda event: throttled.append(event.throttle_time),
        }
    )
    began = time.monotonic()
    _produce(producer, "librdkafka")
    check_rate("librdkafka produces", RECORDS * len(RECORD) / (time.monotonic() - began))
    assert throttled, "the client is told"


def test_librdkafka_consumes_at_the_limit(limited: Subject) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": limited.bootstrap_servers,
            "client.id": "slow-librdkafka",
            "group.id": "g",
            "auto.offset.reset": "earliest",
        }
    )
    consumer.assign([TopicPartition("full", 0, 0)])
    began = time.monotonic()
    count = 0
    while count < RECORDS:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        count += 1
    check_rate("librdkafka consumes", RECORDS * len(RECORD) / (time.monotonic() - began))
    consumer.close()


def test_java_produces_at_the_limit(limited: Subject) -> None:
    props = f"bootstrap.servers={limited.bootstrap_servers}", "client.id=slow-java", "batch.size=50000"
    words = ("--topic", "java", "--num-records", str(RECORDS), "--record-size", str(len(RECORD)), "--throughput", "-1")
    done = run_tool(KAFKA_4, "ProducerPerformance", *words, "--producer-props", *props, check=True)
    found = re.findall(r"([\d.]+) records/sec \(", done.stdout)
    check_rate("Java produces", float(found[-1]) * len(RECORD))


def test_java_consumes_at_the_limit(limited: Subject) -> None:
    words = ("--topic", "full", "--messages", str(RECORDS), "--timeout", "60000")
    server = ("--bootstrap-server", limited.bootstrap_servers)
    done = run_tool(KAFKA_4, "ConsumerPerformance", *server, *words, "--command-property", "client.id=slow-java")
    # start, end, MB, MB/s, records, records/s, rebalance ms, fetch ms, fetch MB/s, fetch records/s
    rows = [line.split(", ") for line in done.stdout.splitlines() if line.count(", ") == 9 and line[0].isdigit()]
    assert rows, done.stdout + done.stderr
    assert int(rows[-1][4]) >= RECORDS
    check_rate("Java consumes", float(rows[-1][9]) * len(RECORD))
