"""Producer and Consumer of ottla.client on a real broker: confluent-kafka's methods, seen by interceptors (F42-F44, F73)."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException, Message, TopicPartition

from ottla.client import Consumer, EndToEndLatency, Interceptor, Producer, ProducerRecord, RecordMetadata
from tests.kit.client import Watch, broker_address, new_topic


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with broker_address() as found:
        yield found


@pytest.fixture
def topic(address: str) -> str:
    return new_topic(address, partitions=2)


def consumer_config(address: str, **more: Any) -> dict[str, Any]:
    return {
        "bootstrap.servers": address,
        "group.id": f"g-{uuid.uuid4().hex[:8]}",
        "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
        **more,
    }


def all_of(consumer: Consumer, count: int) -> list[Message]:
    found: list[Message] = []
    until = time.monotonic() + 60
    while len(found) < count and time.monotonic() < until:
        message = consumer.poll(0.2)
        if message is not None:
            assert message.error() is None
            found.append(message)
    return found


class Spoiling(Interceptor):
    def before_send(self, record: ProducerRecord) -> ProducerRecord:
        raise RuntimeError("spoilt")

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        raise RuntimeError("spoilt")

    def before_handover(self, messages: list[Message]) -> list[Message]:
        for message in messages:
            message.set_value(b"spoilt")
        raise RuntimeError("spoilt")

    def on_commit(self, offsets: list[TopicPartition], error: KafkaError | None) -> None:
        raise RuntimeError("spoilt")


class Routing(Interceptor):
    """Sends everything to partition 1, with a header and another key."""

    def before_send(self, record: ProducerRecord) -> ProducerRecord:
        return record.with_header("via", b"routing")._replace(partition=1, key=b"routed")


def test_they_are_confluent_kafkas(address: str) -> None:
    with Producer({"bootstrap.servers": address}) as producer, Consumer(consumer_config(address)) as consumer:
        assert isinstance(producer, confluent_kafka.Producer)
        assert isinstance(consumer, confluent_kafka.Consumer)
        assert producer.list_topics(timeout=60).brokers
        assert len(producer) == 0
    with pytest.raises(RuntimeError):
        consumer.poll(0)


def test_records_go_through_the_chain_both_ways(address: str, topic: str) -> None:
    """One interceptor fails on everything: nothing is lost, nothing is changed by it."""
    watch, latency = Watch(), EndToEndLatency()
    delivered: list[tuple[int | None, int | None]] = []
    producer = Producer({"bootstrap.servers": address}, interceptors=[Routing(), Spoiling(), watch, latency])
    producer.produce(
        topic, b"first", on_delivery=lambda error, message: delivered.append((message.partition(), message.offset()))
    )
    producer.produce(topic, "text", "key", headers={"own": "1", "none": None})
    producer.produce(topic, None, b"tombstone", timestamp=1_700_000_000_000)
    producer.produce(topic, b"", headers=None)
    assert producer.flush(60) == 0
    assert delivered == [(1, 0)]
    assert [(each.topic, each.partition, each.offset) for each, _ in watch.acknowledged] == [(topic, 1, n) for n in range(4)]
    assert watch.acknowledged[2][0].timestamp_ms == 1_700_000_000_000
    assert [error for _, error in watch.acknowledged] == [None] * 4

    consumer = Consumer(consumer_config(address), interceptors=[Spoiling(), watch, latency])
    consumer.subscribe([topic])
    messages = all_of(consumer, 4)
    assert [message.value() for message in messages] == [b"first", b"text", None, b""]
    assert {message.key() for message in messages} == {b"routed"}
    headers = [dict(message.headers() or []) for message in messages]
    assert all(each["via"] == b"routing" for each in headers)
    assert (headers[1]["own"], headers[1]["none"]) == (b"1", None)
    assert [len(batch) for batch in watch.handed_over] == [1] * 4
    assert latency.figures()[topic].count == 4

    consumer.commit(message=messages[1], asynchronous=False)
    assert [(each.partition, each.offset) for offsets, _ in watch.committed for each in offsets] == [(1, 2)]
    with pytest.raises(KafkaException):
        consumer.commit(offsets=[TopicPartition("no-such-topic", 0, 5)], asynchronous=False)
    offsets, error = watch.committed[-1]
    assert error is not None
    assert [(each.topic, each.offset) for each in offsets] == [("no-such-topic", 5)]
    consumer.close()
    producer.close()
    assert watch.closed == 2


def test_asynchronous_commits_are_told_when_the_client_is_polled_or_closed(address: str, topic: str) -> None:
    watch, own = Watch(), []
    producer = Producer({"bootstrap.servers": address})
    producer.produce(topic, b"v", partition=0)
    producer.flush(60)
    config = consumer_config(address, on_commit=lambda error, offsets: own.append(offsets))
    with Consumer(config, interceptors=[watch]) as consumer:
        consumer.subscribe([topic])
        (message,) = all_of(consumer, 1)
        consumer.commit(message=message)
    assert [each.offset for offsets, _ in watch.committed for each in offsets] == [1]
    assert [each.offset for offsets in own for each in offsets] == [1], "the program's own callback is called too"
    assert watch.closed == 1


def test_batches(address: str, topic: str) -> None:
    """consume() hands a batch to the chain at once; an interceptor may leave records out."""

    class OddOnly(Interceptor):
        def before_handover(self, messages: list[Message]) -> list[Message]:
            return [message for message in messages if int(message.value() or b"") % 2]

    watch = Watch()
    producer = Producer({"bootstrap.servers": address}, interceptors=[watch])
    batch: list[dict[str, Any]] = [{"value": str(number), "key": "k"} for number in range(20)]
    assert producer.produce_batch(topic, batch, partition=0) == 20
    assert producer.flush(60) == 0
    assert len(watch.acknowledged) == 20
    consumer = Consumer(consumer_config(address), interceptors=[watch, OddOnly()])
    consumer.assign([TopicPartition(topic, 0, 0)])
    found = consumer.consume(10, 20)
    assert [message.value() for message in found] == [str(number).encode() for number in range(1, 20, 2)]
    assert sum(map(len, watch.handed_over)) == 20
    assert consumer.consume(1, 0.1) == []
    assert consumer.poll(0.1) is None
    consumer.close()


def test_more_than_one_message_out_of_one_comes_one_by_one(address: str, topic: str) -> None:
    class Doubling(Interceptor):
        def before_handover(self, messages: list[Message]) -> list[Message]:
            return [message for message in messages for _ in range(2)]

    producer = Producer({"bootstrap.servers": address})
    producer.produce(topic, b"v", partition=0)
    producer.flush(60)
    with Consumer(consumer_config(address), interceptors=[Doubling()]) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        assert [message.value() for message in all_of(consumer, 2)] == [b"v", b"v"]
        assert consumer.poll(0.1) is None


def test_ends_of_partitions_are_no_business_of_interceptors(address: str, topic: str) -> None:
    watch = Watch()
    with Consumer(consumer_config(address, **{"enable.partition.eof": True}), interceptors=[watch]) as consumer:
        consumer.assign([TopicPartition(topic, 0, 0)])
        (event,) = consumer.consume(1, 20)
        error = event.error()
        assert error is not None
        assert error.code() == KafkaError._PARTITION_EOF
    assert watch.handed_over == []


def test_what_the_client_refuses_is_acknowledged_with_the_error(address: str, topic: str) -> None:
    watch = Watch()
    config = {"bootstrap.servers": address, "message.max.bytes": 1000, "queue.buffering.max.messages": 1, "linger.ms": 5000}
    producer = Producer(config, interceptors=[watch])
    with pytest.raises(KafkaException):
        producer.produce(topic, bytes(5000))
    producer.produce(topic, b"fits")
    with pytest.raises(BufferError):
        producer.produce(topic, b"one too many")
    batch: list[dict[str, Any]] = [{"value": b"also"}]
    assert producer.produce_batch(topic, batch) == 0
    assert batch[0]["_error"].code() == KafkaError._QUEUE_FULL
    assert producer.flush(60) == 0
    codes = [None if error is None else error.code() for _, error in watch.acknowledged]
    assert codes == [KafkaError.MSG_SIZE_TOO_LARGE, KafkaError._QUEUE_FULL, KafkaError._QUEUE_FULL, None]
    assert watch.sent == 4, "each record sent is acknowledged once"


def test_a_record_the_broker_refuses_is_acknowledged_with_the_error(address: str) -> None:
    small = new_topic(address, **{"max.message.bytes": "500"})  # type: ignore[arg-type]
    watch, own = Watch(), []
    config = {"bootstrap.servers": address, "on_delivery": lambda error, message: own.append(error)}
    producer = Producer(config, interceptors=[watch])
    producer.produce(small, bytes(5000))
    assert producer.flush(60) == 0
    ((metadata, error),) = watch.acknowledged
    assert error is not None
    assert (metadata.topic, metadata.offset, error.code()) == (small, -1, KafkaError.MSG_SIZE_TOO_LARGE)
    assert [each.code() for each in own] == [KafkaError.MSG_SIZE_TOO_LARGE], "the callback of the configuration is called too"
