"""aiokafka 0.14: records and admin calls without a group. It sends old versions: Metadata 5, Produce 8, Fetch 11."""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewPartitions, NewTopic
from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType
from aiokafka.errors import MessageSizeTooLargeError, OffsetOutOfRangeError

from tests.kit.subject import soon

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


def run(main: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(asyncio.wait_for(main, 120))


async def produce(bootstrap: str, topic: str, records: list[dict[str, Any]], **config: Any) -> list[Any]:
    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **config)
    await producer.start()
    try:
        sent = [await producer.send(topic, **{"partition": 0, **record}) for record in records]
        return [await each for each in sent]
    finally:
        await producer.stop()


@asynccontextmanager
async def consumer(bootstrap: str, **config: Any) -> AsyncIterator[AIOKafkaConsumer]:
    reader = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, **config)
    await reader.start()
    try:
        yield reader
    finally:
        await reader.stop()


async def consume(bootstrap: str, topic: str, count: int, *, start: int = 0, **config: Any) -> list[Any]:
    async with consumer(bootstrap, **config) as reader:
        partition = TopicPartition(topic, 0)
        reader.assign([partition])
        reader.seek(partition, start)
        return [await reader.getone() for _ in range(count)]


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_what_goes_in_comes_out_in_order(bootstrap: str, topic: str, codec: str | None, acks: Any) -> None:
    async def main() -> None:
        values = [f"value {number} ".encode() * 20 for number in range(300)]
        await produce(bootstrap, topic, [{"value": value} for value in values], acks=acks, compression_type=codec)
        records = await consume(bootstrap, topic, len(values))
        assert [record.value for record in records] == values
        assert [record.offset for record in records] == list(range(len(values)))

    run(main())


@pytest.mark.parametrize("codec", CODECS)
def test_keys_headers_timestamps_nulls_and_empties(bootstrap: str, topic: str, codec: str | None) -> None:
    records: list[dict[str, Any]] = [
        {"key": b"k", "value": b"v", "timestamp_ms": 1_700_000_000_123, "headers": [("h", b"1"), ("h", b"2")]},
        {"key": b"tombstone", "value": None, "timestamp_ms": 1_700_000_000_124},
        {"key": b"", "value": b"", "timestamp_ms": 1_700_000_000_125},
        {"key": "ключ 🔑".encode(), "value": bytes(range(256)), "timestamp_ms": 1_700_000_000_001},
    ]

    async def main() -> None:
        await produce(bootstrap, topic, records, compression_type=codec)
        for record, found in zip(records, await consume(bootstrap, topic, len(records)), strict=True):
            assert (found.key, found.value, found.timestamp) == (record["key"], record["value"], record["timestamp_ms"])
            assert list(found.headers) == record.get("headers", [])

    run(main())


def test_idempotent_producer(bootstrap: str, topic: str) -> None:
    async def main() -> None:
        values = [str(number).encode() for number in range(500)]
        await produce(bootstrap, topic, [{"value": value} for value in values], enable_idempotence=True, max_batch_size=500)
        assert [record.value for record in await consume(bootstrap, topic, len(values))] == values

    run(main())


def test_big_records_and_too_big_ones(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"max.message.bytes": "4000000"})

    async def main() -> None:
        values = [bytes([number]) * 3_000_000 for number in range(3)]
        limits = {"max_request_size": 8_000_000, "max_batch_size": 8_000_000}
        await produce(bootstrap, topic, [{"value": value} for value in values[:1]], **limits)
        await produce(bootstrap, topic, [{"value": value} for value in values[1:2]], **limits)
        with pytest.raises(MessageSizeTooLargeError):
            await produce(bootstrap, topic, [{"value": bytes(4_500_000)}], **limits)
        found = await consume(bootstrap, topic, 2, max_partition_fetch_bytes=10_000, fetch_max_bytes=10_000)
        assert [record.value for record in found] == values[:2]

    run(main())


def test_offsets(bootstrap: str, topic: str) -> None:
    """F32."""

    async def main() -> None:
        now = int(time.time() * 1000)
        # With acks=1 the end may be told before the other replicas have them.
        values = [{"value": b"x", "timestamp_ms": now + each} for each in (1_000, 2_000, 3_000)]
        await produce(bootstrap, topic, values, acks="all")
        partition = TopicPartition(topic, 0)
        async with consumer(bootstrap) as reader:
            assert await reader.beginning_offsets([partition]) == {partition: 0}
            assert await reader.end_offsets([partition]) == {partition: 3}
            found = (await reader.offsets_for_times({partition: now + 1_500}))[partition]
            assert (found.offset, found.timestamp) == (1, now + 2_000)
            assert await reader.offsets_for_times({partition: now + 9_000}) == {partition: None}

    run(main())


def test_offset_out_of_range(bootstrap: str, topic: str) -> None:
    async def main() -> None:
        await produce(bootstrap, topic, [{"value": b"x"}])
        with pytest.raises(OffsetOutOfRangeError):
            await consume(bootstrap, topic, 1, start=5, auto_offset_reset="none")

    run(main())


def test_admin(bootstrap: str) -> None:
    name = f"aio-{uuid.uuid4().hex[:8]}"

    async def main() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic(name, 2, 1, topic_configs={"retention.ms": "12345"})])
            while name not in await admin.list_topics():
                assert not soon(lambda: False, 0.1)
            await admin.create_partitions({name: NewPartitions(4)})
            (described,) = await admin.describe_topics([name])
            assert described["error_code"] == 0
            (configs,) = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, name)])
            assert "12345" in str(configs)
            await admin.delete_topics([name])
        finally:
            await admin.close()

    run(main())
