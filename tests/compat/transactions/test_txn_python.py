"""kafka-python's and aiokafka's transactional producers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import aiokafka
import aiokafka.errors
import kafka
import kafka.errors
import pytest

Read = Callable[..., list[bytes]]


def test_kafka_python(servers: str, name: str, make_topic: Callable[..., str], read: Read) -> None:
    topic = make_topic(2)
    producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=name)
    producer.init_transactions()
    for number in range(6):
        producer.begin_transaction()
        for partition in (0, 1):
            producer.send(topic, b"%d" % number, partition=partition).get(20)
        producer.commit_transaction() if number % 2 == 0 else producer.abort_transaction()
    producer.close()
    assert read(topic, partitions=2) == [b"0", b"2", b"4"] * 2
    assert len(read(topic, "read_uncommitted", partitions=2)) == 12


def test_kafka_python_sends_offsets(
    servers: str, name: str, make_topic: Callable[..., str], read: Read, fill: Callable[[str, int], None]
) -> None:
    source, sink = make_topic(), make_topic()
    fill(source, 30)
    consumer = kafka.KafkaConsumer(
        source, bootstrap_servers=servers, group_id=name, auto_offset_reset="earliest", enable_auto_commit=False
    )
    producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=name)
    producer.init_transactions()
    done = 0
    while done < 30:
        for partition, records in consumer.poll(timeout_ms=20_000, max_records=7).items():
            producer.begin_transaction()
            for record in records:
                producer.send(sink, record.value)
            offsets = {partition: kafka.structs.OffsetAndMetadata(records[-1].offset + 1, "", -1)}
            producer.send_offsets_to_transaction(offsets, name)
            producer.commit_transaction()
            done += len(records)
    assert consumer.committed(kafka.TopicPartition(source, 0)) == 30
    consumer.close()
    producer.close()
    assert read(sink) == [b"%d" % number for number in range(30)]


def test_aiokafka(servers: str, name: str, make_topic: Callable[..., str], read: Read) -> None:
    topic = make_topic()

    async def main() -> None:
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name) as producer:
            for number in range(6):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"%d" % number)
                await (producer.commit_transaction() if number % 2 == 0 else producer.abort_transaction())

    asyncio.run(main())
    assert read(topic) == [b"0", b"2", b"4"]


def test_aiokafka_consume_transform_produce(
    servers: str, name: str, make_topic: Callable[..., str], read: Read, fill: Callable[[str, int], None]
) -> None:
    source, sink = make_topic(), make_topic()
    fill(source, 40)

    async def main() -> int:
        consumer = aiokafka.AIOKafkaConsumer(
            source,
            bootstrap_servers=servers,
            group_id=name,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
        done = 0
        async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name) as producer, consumer:
            while done < 40:
                for partition, records in (await consumer.getmany(timeout_ms=10_000, max_records=9)).items():
                    async with producer.transaction():
                        for record in records:
                            await producer.send(sink, record.value)
                        await producer.send_offsets_to_transaction({partition: records[-1].offset + 1}, name)
                    done += len(records)
            committed: int = await consumer.committed(aiokafka.TopicPartition(source, 0))
        return committed

    assert asyncio.run(main()) == 40
    assert read(sink) == [b"%d" % number for number in range(40)]


def test_t03_aiokafkas_zombie_is_fenced(servers: str, name: str, make_topic: Callable[..., str], read: Read) -> None:
    topic = make_topic()

    async def main() -> None:
        old = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name)
        new = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=name)
        await old.start()
        await old.begin_transaction()
        await old.send_and_wait(topic, b"never seen")
        await new.start()
        with pytest.raises(aiokafka.errors.ProducerFenced):
            await old.commit_transaction()
        await new.begin_transaction()
        await new.send_and_wait(topic, b"seen")
        await new.commit_transaction()
        await new.stop()
        try:
            await old.stop()
        except aiokafka.errors.ProducerFenced:
            pass

    asyncio.run(main())
    assert read(topic) == [b"seen"]
