"""Every client reads what every other client wrote: codecs, keys, headers, timestamps, and where a key lands.

The point is the bytes between them: batches are stored as the producer made them, so a wrong stamp or a wrong range shows here.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import time
from collections.abc import Callable

import pytest

from tests.kit.peers import kcat

Row = tuple[int, bytes | None, bytes | None, int]  # offset, key, value, timestamp

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
STAMP = 1_700_000_000_000


def records(codec: str) -> list[tuple[bytes, bytes, int]]:
    return [(f"k{number}".encode(), f"{codec} {number} ".encode() * (number % 50), STAMP + number) for number in range(200)]


def confluent_writes(bootstrap: str, topic: str, codec: str) -> None:
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 5})
    for key, value, stamp in records(codec):
        producer.produce(topic, value, key, partition=0, timestamp=stamp)
    assert producer.flush(60) == 0


def confluent_reads(bootstrap: str, topic: str, count: int) -> list[Row]:
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    found: list[Row] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        for message in consumer.consume(count - len(found), 1):
            assert message.error() is None
            found.append((message.offset(), message.key(), message.value(), message.timestamp()[1]))  # type: ignore[arg-type]
    consumer.close()
    return found


def kafka_python_writes(bootstrap: str, topic: str, codec: str) -> None:
    from kafka import KafkaProducer

    producer = KafkaProducer(bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec, linger_ms=5)
    for key, value, stamp in records(codec):
        producer.send(topic, value, key, partition=0, timestamp_ms=stamp)
    producer.flush(60)
    producer.close()


def kafka_python_reads(bootstrap: str, topic: str, count: int) -> list[Row]:
    from kafka import KafkaConsumer, TopicPartition

    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    consumer.assign([TopicPartition(topic, 0)])
    found: list[Row] = []
    deadline = time.monotonic() + 60
    while len(found) < count and time.monotonic() < deadline:
        for some in consumer.poll(1000).values():
            found += [(each.offset, each.key, each.value, each.timestamp) for each in some]
    consumer.close()
    return found


def aiokafka_writes(bootstrap: str, topic: str, codec: str) -> None:
    from aiokafka import AIOKafkaProducer

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, compression_type=None if codec == "none" else codec) as producer:
            for key, value, stamp in records(codec):
                await producer.send(topic, value, key, partition=0, timestamp_ms=stamp)

    asyncio.run(asyncio.wait_for(main(), 120))


def aiokafka_reads(bootstrap: str, topic: str, count: int) -> list[Row]:
    from aiokafka import AIOKafkaConsumer, TopicPartition

    async def main() -> list[Row]:
        async with AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, 0)])
            found = [await consumer.getone() for _ in range(count)]
            return [(each.offset, each.key, each.value, each.timestamp) for each in found]

    return asyncio.run(asyncio.wait_for(main(), 120))


def kcat_reads(bootstrap: str, topic: str, count: int) -> list[Row]:
    command = [kcat(), "-b", bootstrap, "-C", "-t", topic, "-p", "0", "-o", "beginning", "-c", str(count), "-e", "-q", "-J"]
    out = subprocess.run(command, capture_output=True, text=True, timeout=180, check=True).stdout
    rows = [json.loads(line) for line in out.splitlines()]
    return [(row["offset"], row["key"].encode(), row["payload"].encode(), row["ts"]) for row in rows]


WRITERS = {"confluent": confluent_writes, "kafka_python": kafka_python_writes, "aiokafka": aiokafka_writes}
READERS = {"confluent": confluent_reads, "kafka_python": kafka_python_reads, "aiokafka": aiokafka_reads, "kcat": kcat_reads}


@pytest.fixture(scope="module", autouse=True)
def _kafka_python_loads_with_its_own_warnings() -> None:
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import kafka.admin  # noqa: F401


@pytest.mark.parametrize("writer", WRITERS)
def test_everyone_reads_what_one_wrote(bootstrap: str, topic: str, writer: str) -> None:
    expected: list[Row] = []
    for codec in CODECS:
        WRITERS[writer](bootstrap, topic, codec)
        expected += [(len(expected) + n, key, value, stamp) for n, (key, value, stamp) in enumerate(records(codec))]
    for name, read in READERS.items():
        assert read(bootstrap, topic, len(expected)) == expected, f"{name} reads something else than {writer} wrote"


def test_a_key_lands_on_the_same_partition_from_every_client(bootstrap: str, new_topic: Callable[..., str]) -> None:
    """F24: murmur2 as Java has it. librdkafka must be told; the Python clients do it by default."""
    from aiokafka import AIOKafkaProducer
    from confluent_kafka import Message, Producer
    from kafka import KafkaProducer

    topic = new_topic(partitions=11)
    keys = [f"key-{number}".encode() for number in range(60)]
    placed: dict[bytes, set[int]] = {key: set() for key in keys}

    def on_delivery(error: object, message: Message) -> None:
        assert error is None
        placed[message.key()].add(message.partition())  # type: ignore[arg-type, index]

    librdkafka = Producer({"bootstrap.servers": bootstrap, "partitioner": "murmur2"})
    for key in keys:
        librdkafka.produce(topic, b"", key, on_delivery=on_delivery)
    assert librdkafka.flush(60) == 0
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    sent = {key: producer.send(topic, b"", key) for key in keys}
    for key, each in sent.items():
        placed[key].add(each.get(60).partition)
    producer.close()

    async def main() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as writer:
            for key in keys:
                placed[key].add((await writer.send_and_wait(topic, b"", key)).partition)

    asyncio.run(asyncio.wait_for(main(), 120))
    assert {key: len(partitions) for key, partitions in placed.items()} == dict.fromkeys(keys, 1)
    assert len(set.union(*placed.values())) == 11
