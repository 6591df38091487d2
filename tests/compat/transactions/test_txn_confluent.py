"""confluent-kafka's transactional producer (librdkafka, before KIP-890): commit, abort, fencing, consume-transform-produce."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition

Read = Callable[..., list[bytes]]


def transactional(servers: str, name: str, **more: Any) -> Producer:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "linger.ms": 2, **more})
    producer.init_transactions(60)
    return producer


def test_commit_and_abort(servers: str, name: str, make_topic: Callable[..., str], read: Read) -> None:
    topic = make_topic(3)
    producer = transactional(servers, name)
    expected = []
    for number in range(12):
        producer.begin_transaction()
        for each in range(20):
            producer.produce(topic, b"%d-%d" % (number, each), partition=each % 3)
        assert producer.flush(60) == 0  # written before the end is decided, so that an abort has something to take back
        if number % 3 == 1:
            producer.abort_transaction(60)
        else:
            producer.commit_transaction(60)
            expected += [(each % 3, b"%d-%d" % (number, each)) for each in range(20)]
    in_order = [value for partition in range(3) for place, value in expected if place == partition]
    assert read(topic, partitions=3) == in_order
    assert len(read(topic, "read_uncommitted", partitions=3)) == 12 * 20


def test_t14_a_transaction_without_records(servers: str, name: str, make_topic: Callable[..., str], read: Read) -> None:
    topic = make_topic()
    producer = transactional(servers, name)
    for commit in (True, False, True):
        producer.begin_transaction()
        producer.commit_transaction(60) if commit else producer.abort_transaction(60)
    producer.begin_transaction()
    producer.produce(topic, b"x")
    producer.commit_transaction(60)
    assert read(topic) == [b"x"]


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed(servers: str, name: str, make_topic: Callable[..., str], read: Read, compression: str) -> None:
    topic = make_topic()
    producer = transactional(servers, name, **{"compression.type": compression})
    for number, commit in enumerate((True, False, True)):
        producer.begin_transaction()
        for _ in range(50):
            producer.produce(topic, b"%d" % number * 100)
        producer.flush(60)
        producer.commit_transaction(60) if commit else producer.abort_transaction(60)
    assert read(topic) == [b"0" * 100] * 50 + [b"2" * 100] * 50


def test_t03_the_older_of_two_is_fenced(servers: str, name: str, make_topic: Callable[..., str], read: Read) -> None:
    topic = make_topic()
    old = transactional(servers, name)
    old.begin_transaction()
    old.produce(topic, b"never seen")
    assert old.flush(60) == 0
    new = transactional(servers, name)
    with pytest.raises(KafkaException) as refused:
        old.commit_transaction(60)
    assert refused.value.args[0].code() == KafkaError._FENCED
    assert refused.value.args[0].fatal()
    new.begin_transaction()
    new.produce(topic, b"seen")
    new.commit_transaction(60)
    assert read(topic) == [b"seen"]
    assert read(topic, "read_uncommitted") == [b"never seen", b"seen"]


def test_open_transactions_hold_readers_back(servers: str, name: str, make_topic: Callable[..., str], read: Read) -> None:
    topic = make_topic()
    first, second = transactional(servers, name), transactional(servers, name + "-2")
    first.begin_transaction()
    first.produce(topic, b"1")
    first.flush(60)
    second.begin_transaction()
    second.produce(topic, b"2")
    second.commit_transaction(60)
    assert read(topic) == [], "what is committed behind an open one waits for it (T01)"
    first.commit_transaction(60)
    assert read(topic) == [b"1", b"2"]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_consume_transform_produce(
    servers: str, name: str, make_topic: Callable[..., str], read: Read, fill: Callable[[str, int], None], protocol: str
) -> None:
    """Every third transaction is aborted, and its input read again: what comes out is what went in, once, in order (F66)."""
    source, sink = make_topic(), make_topic()
    fill(source, 200)
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": name,
            "group.protocol": protocol,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([source])
    producer = transactional(servers, name)
    done = attempt = 0
    while done < 200:
        messages = [message for message in consumer.consume(min(17, 200 - done), timeout=60) if message.error() is None]
        assert messages, f"nothing came after {done} records"
        attempt += 1
        producer.begin_transaction()
        for message in messages:
            producer.produce(sink, b"out-" + (message.value() or b""))
        positions = consumer.position(consumer.assignment())
        producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 60)
        if attempt % 3 == 2:
            producer.flush(60)
            producer.abort_transaction(60)
            for at in consumer.committed(consumer.assignment(), 60):
                consumer.seek(TopicPartition(at.topic, at.partition, max(at.offset, 0)))
        else:
            producer.commit_transaction(60)
            done += len(messages)
    (committed,) = consumer.committed([TopicPartition(source, 0)], 60)
    assert committed.offset == 200
    consumer.close()
    assert read(sink) == [b"out-%d" % number for number in range(200)]
    assert len(read(sink, "read_uncommitted")) > 200


def test_t08_a_member_that_is_none_cannot_commit(
    servers: str, name: str, make_topic: Callable[..., str], fill: Callable[[str, int], None]
) -> None:
    """Generations protect where transactional ids do not (KIP-447): the group has moved on without this consumer."""
    source = make_topic()
    fill(source, 10)
    config = {"bootstrap.servers": servers, "group.id": name, "auto.offset.reset": "earliest", "enable.auto.commit": False}
    zombie = Consumer(config)
    zombie.subscribe([source])
    assert zombie.poll(60) is not None
    metadata = zombie.consumer_group_metadata()
    zombie.close()
    successor = Consumer(config)
    successor.subscribe([source])
    assert successor.poll(60) is not None
    producer = transactional(servers, name)
    producer.begin_transaction()
    with pytest.raises(KafkaException) as refused:
        producer.send_offsets_to_transaction([TopicPartition(source, 0, 10)], metadata, 60)
    assert refused.value.args[0].code() in (KafkaError.UNKNOWN_MEMBER_ID, KafkaError.ILLEGAL_GENERATION)
    assert refused.value.args[0].txn_requires_abort()
    producer.abort_transaction(60)
    (committed,) = successor.committed([TopicPartition(source, 0)], 60)
    assert committed.offset < 0
    successor.close()


def test_a_timeout_beyond_the_limit(servers: str, name: str) -> None:
    producer = Producer({"bootstrap.servers": servers, "transactional.id": name, "transaction.timeout.ms": 900_001})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(60)
    assert refused.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
