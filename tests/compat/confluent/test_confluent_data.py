"""confluent-kafka (librdkafka): records in and out without a group. F20, F21, F24-F29, F31, F32."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    Consumer,
    KafkaError,
    KafkaException,
    Message,
    Producer,
    TopicPartition,
)

from tests.kit.present import present

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def produce(bootstrap: str, topic: str, records: list[dict[str, Any]], **config: Any) -> list[Message]:
    """Sends them all and returns the delivered messages, in order; a delivery error is raised."""
    delivered: list[Message] = []

    def on_delivery(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            raise KafkaException(error)
        delivered.append(message)

    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, "message.timeout.ms": 60_000, **config})
    for record in records:
        producer.produce(topic, on_delivery=on_delivery, **{"partition": 0, **record})
    assert producer.flush(60) == 0
    return delivered


def consumer(bootstrap: str, **config: Any) -> Consumer:
    base = {"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False, "auto.offset.reset": "error"}
    return Consumer({**base, **config})


def consume(bootstrap: str, topic: str, count: int, *, start: int = 0, partition: int = 0, **config: Any) -> list[Message]:
    reader = consumer(bootstrap, **config)
    reader.assign([TopicPartition(topic, partition, start)])
    messages: list[Message] = []
    deadline = time.monotonic() + 60
    while len(messages) < count and time.monotonic() < deadline:
        for message in reader.consume(count - len(messages), 1):
            if message.error():
                raise KafkaException(message.error())
            messages.append(message)
    reader.close()
    assert len(messages) == count, f"{len(messages)} of {count} records in 60 s"
    return messages


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_what_goes_in_comes_out_in_order(bootstrap: str, topic: str, codec: str, acks: str) -> None:
    values = [f"value {number} ".encode() * 20 for number in range(1_000)]
    produce(bootstrap, topic, [{"value": value} for value in values], acks=acks, **{"compression.type": codec})
    messages = consume(bootstrap, topic, len(values))
    assert [message.value() for message in messages] == values
    assert [message.offset() for message in messages] == list(range(len(values)))


@pytest.mark.parametrize("codec", CODECS)
def test_keys_headers_timestamps_nulls_and_empties(bootstrap: str, topic: str, codec: str) -> None:
    records: list[dict[str, Any]] = [
        {"key": b"k", "value": b"v", "timestamp": 1_700_000_000_123, "headers": [("h", b"1"), ("h", b"2"), ("none", None)]},
        {"key": None, "value": None, "timestamp": 1_700_000_000_124},
        {"key": b"", "value": b"", "timestamp": 1_700_000_000_125, "headers": [("", b"")]},
        {"key": "ключ 🔑".encode(), "value": bytes(range(256)), "timestamp": 1_700_000_000_001},
    ]
    produce(bootstrap, topic, records, **{"compression.type": codec})
    for record, message in zip(records, consume(bootstrap, topic, len(records)), strict=True):
        assert (message.key(), message.value()) == (record["key"], record["value"])
        assert message.timestamp() == (TIMESTAMP_CREATE_TIME, record["timestamp"])
        assert (message.headers() or []) == record.get("headers", [])


def test_many_writers_and_many_readers(bootstrap: str, new_topic: Callable[..., str]) -> None:
    """F1, F4: all is kept however often it was read, and each partition has the order in which each writer wrote to it."""
    topic = new_topic(partitions=2)
    sent: dict[int, list[bytes]] = {0: [], 1: []}
    producers = [Producer({"bootstrap.servers": bootstrap, "linger.ms": 1}) for _ in range(3)]
    for number in range(300):
        for writer, producer in enumerate(producers):
            value = f"{writer}:{number}".encode()
            producer.produce(topic, value, partition=number % 2)
            sent[number % 2].append(value)
    assert [producer.flush(60) for producer in producers] == [0, 0, 0]
    for partition, values in sent.items():
        first, again = (consume(bootstrap, topic, len(values), partition=partition) for _ in range(2))
        assert [message.value() for message in again] == [message.value() for message in first]
        for writer in range(3):
            mine = f"{writer}:".encode()
            read = [message.value() or b"" for message in first]
            assert [value for value in read if value.startswith(mine)] == [value for value in values if value.startswith(mine)]


def test_delivery_reports_carry_the_offsets(bootstrap: str, topic: str) -> None:
    """F28: what became of a record reaches its sender later; that it was refused, too (see the limit below)."""
    first = produce(bootstrap, topic, [{"value": b"a"}, {"value": b"b"}], acks="all")
    second = produce(bootstrap, topic, [{"value": b"c"}], acks=1)
    assert [message.offset() for message in first + second] == [0, 1, 2]


def test_idempotent_producer_with_five_in_flight(bootstrap: str, topic: str) -> None:
    """F26, F29: order holds over many small batches in flight on one connection."""
    values = [str(number).encode() for number in range(5_000)]
    config = {"enable.idempotence": True, "batch.num.messages": 20, "linger.ms": 0}
    delivered = produce(bootstrap, topic, [{"value": value} for value in values], **config)
    assert [message.offset() for message in delivered] == list(range(len(values)))
    assert [message.value() for message in consume(bootstrap, topic, len(values))] == values


def test_a_record_just_below_the_limit(bootstrap: str, topic: str) -> None:
    value = bytes(1_000_000)
    produce(bootstrap, topic, [{"value": value}], **{"message.max.bytes": 2_000_000})
    (message,) = consume(bootstrap, topic, 1)
    assert message.value() == value


def test_a_record_above_the_limit_is_refused_and_not_kept(bootstrap: str, topic: str) -> None:
    """F18, F28."""
    with pytest.raises(KafkaException) as refused:
        produce(bootstrap, topic, [{"value": bytes(1_100_000)}], **{"message.max.bytes": 5_000_000})
    assert refused.value.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
    assert consumer(bootstrap).get_watermark_offsets(TopicPartition(topic, 0), timeout=60) == (0, 0)


def test_a_batch_larger_than_every_fetch_limit_still_comes(bootstrap: str, new_topic: Callable[..., str]) -> None:
    """The first batch of a fetch is returned whole, whatever the limits: a consumer must be able to get past it."""
    topic = new_topic(**{"max.message.bytes": "12000000"})
    values = [bytes([number]) * 5_000_000 for number in range(3)]
    produce(bootstrap, topic, [{"value": value} for value in values], **{"message.max.bytes": 10_000_000})
    limits = {"fetch.message.max.bytes": 1_000, "fetch.max.bytes": 10_000, "message.max.bytes": 10_000}
    assert [message.value() for message in consume(bootstrap, topic, 3, **limits)] == values


def test_reading_from_the_middle_of_a_batch(bootstrap: str, topic: str) -> None:
    """F26: what came within `linger.ms` is one batch."""
    produce(bootstrap, topic, [{"value": str(number).encode()} for number in range(100)], **{"linger.ms": 50})
    assert [message.value() for message in consume(bootstrap, topic, 37, start=63)] == [str(n).encode() for n in range(63, 100)]


def test_offsets_for_times(bootstrap: str, topic: str) -> None:
    """F32: the first record at or after the time; the end if there is none."""
    times = [1_000, 2_000, 2_000, 3_000, 5_000]
    now = int(time.time() * 1000)
    produce(bootstrap, topic, [{"value": b"x", "timestamp": now + each} for each in times])
    reader = consumer(bootstrap)

    def at(timestamp: int) -> int:
        (found,) = reader.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=60)
        return found.offset

    assert [at(now + each) for each in (0, 1_000, 1_001, 2_000, 2_500, 5_000)] == [0, 0, 1, 1, 3, 4]
    assert at(now + 5_001) == OFFSET_END
    reader.close()


def test_log_append_time(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"message.timestamp.type": "LogAppendTime"})
    before = int(time.time() * 1000)
    produce(bootstrap, topic, [{"value": b"x", "timestamp": 5}])
    (message,) = consume(bootstrap, topic, 1)
    kind, stamp = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert before - 1 <= stamp <= time.time() * 1000 + 1


def test_seek_back_and_to_the_end(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [{"value": str(number).encode()} for number in range(10)])
    reader = consumer(bootstrap, **{"enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])

    def next_value() -> bytes:
        message = reader.poll(60)
        assert message is not None
        assert message.error() is None
        return message.value()  # type: ignore[return-value]

    assert next_value() == b"0"
    reader.seek(TopicPartition(topic, 0, 8))
    assert next_value() == b"8"
    reader.seek(TopicPartition(topic, 0, 2))
    assert next_value() == b"2"
    reader.seek(TopicPartition(topic, 0, OFFSET_END))
    end = present(reader.poll(60))  # where the end is, it asks now; it must not find it behind what comes next
    assert (present(end.error()).code(), end.offset()) == (KafkaError._PARTITION_EOF, 10)
    produce(bootstrap, topic, [{"value": b"new"}])
    assert next_value() == b"new"
    reader.close()


def test_offset_out_of_range_is_said(bootstrap: str, topic: str) -> None:
    """F12."""
    produce(bootstrap, topic, [{"value": b"x"}])
    with pytest.raises(KafkaException) as refused:
        consume(bootstrap, topic, 1, start=5)
    assert refused.value.args[0].code() in (KafkaError.OFFSET_OUT_OF_RANGE, KafkaError._AUTO_OFFSET_RESET)


def test_a_waiting_reader_gets_what_is_written_later(bootstrap: str, topic: str) -> None:
    """F31, F76: the long poll ends when data come, long before its limit."""
    reader = consumer(bootstrap, **{"fetch.wait.max.ms": 100_000, "socket.timeout.ms": 120_000})
    reader.assign([TopicPartition(topic, 0, 0)])
    assert reader.poll(1) is None
    started = time.monotonic()
    produce(bootstrap, topic, [{"value": b"late"}])
    message = reader.poll(90)
    assert message is not None
    assert message.value() == b"late"
    assert time.monotonic() - started < 80  # not a speed: it tells a completed wait from one that ran out
    reader.close()


def test_partition_end_is_told(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [{"value": b"x"}])
    reader = consumer(bootstrap, **{"enable.partition.eof": True})
    reader.assign([TopicPartition(topic, 0, 0)])
    assert present(reader.poll(60)).value() == b"x"
    end = present(reader.poll(60))
    assert present(end.error()).code() == KafkaError._PARTITION_EOF
    assert end.offset() == 1
    reader.close()


def test_same_key_same_partition(bootstrap: str, new_topic: Callable[..., str]) -> None:
    """F24, F25: Java's partitioner, murmur2, over 7 partitions; the numbers are Java's."""
    topic = new_topic(partitions=7)
    keys = [f"key-{number}".encode() for number in range(200)]
    delivered = produce(
        bootstrap, topic, [{"key": key, "value": key, "partition": -1} for key in keys * 2], partitioner="murmur2"
    )
    placed: dict[Any, Any] = {}
    for message in delivered:
        assert placed.setdefault(message.key(), message.partition()) == message.partition()
    assert set(placed.values()) == set(range(7))
    for partition in range(7):
        mine = [key for key in keys * 2 if placed[key] == partition]
        assert [message.value() for message in consume(bootstrap, topic, len(mine), partition=partition)] == mine


def test_keyless_record_on_a_compacted_topic_is_refused(bootstrap: str, new_topic: Callable[..., str]) -> None:
    """F23."""
    topic = new_topic(**{"cleanup.policy": "compact"})
    produce(bootstrap, topic, [{"key": b"k", "value": b"v"}])
    with pytest.raises(KafkaException) as refused:
        produce(bootstrap, topic, [{"value": b"v"}])
    assert refused.value.args[0].code() == KafkaError.INVALID_RECORD


@pytest.mark.parametrize("stored", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_recompressed_to_the_topics_codec(bootstrap: str, new_topic: Callable[..., str], stored: str) -> None:
    """F22."""
    topic = new_topic(**{"compression.type": stored})
    values = [f"value {number} ".encode() * 10 for number in range(300)]
    for codec in CODECS:
        produce(
            bootstrap,
            topic,
            [{"key": b"k", "value": value, "headers": [("c", codec)]} for value in values],
            **{"compression.type": codec},
        )
    messages = consume(bootstrap, topic, len(values) * len(CODECS))
    assert [message.value() for message in messages] == values * len(CODECS)
    assert [message.offset() for message in messages] == list(range(len(messages)))
