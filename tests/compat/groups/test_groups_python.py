"""kafka-python and aiokafka in groups."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata


def test_kafka_python_shares_and_commits(
    servers: str, group: str, filled: Callable[..., str], eventually: Callable[..., None]
) -> None:
    topic = filled(partitions=4, each=5)
    config: dict[str, Any] = {
        "bootstrap_servers": servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": 6000,
        "heartbeat_interval_ms": 200,
    }
    consumers = [KafkaConsumer(topic, **config) for _ in range(2)]
    for consumer in consumers:
        # Its leader would assign nothing of a topic whose partitions it does not know yet, and leave it at that.
        assert consumer.partitions_for_topic(topic) == {0, 1, 2, 3}
    seen: list[bytes] = []

    def poll() -> None:
        for consumer in consumers:
            for records in consumer.poll(100).values():
                seen.extend(record.value for record in records)

    eventually(lambda: (poll(), sorted(len(consumer.assignment()) for consumer in consumers) == [2, 2])[1], 60)
    eventually(lambda: (poll(), len(set(seen)) == 20)[1])
    for consumer in consumers:
        consumer.commit()
    admin = KafkaAdminClient(bootstrap_servers=servers)
    offsets = admin.list_group_offsets([group])[group] if hasattr(admin, "list_group_offsets") else None
    if offsets is None:
        offsets = admin.list_consumer_group_offsets(group)
    assert {partition.partition: found.offset for partition, found in offsets.items()} == dict.fromkeys(range(4), 5)
    consumers[0].close()
    survivor = consumers[1:]
    eventually(lambda: (survivor[0].poll(100), len(survivor[0].assignment()) == 4)[1], 60)
    survivor[0].close()
    admin.close()
    simple = KafkaConsumer(**config)
    partition = TopicPartition(topic, 0)
    simple.assign([partition])
    simple.commit({partition: OffsetAndMetadata(3, "by hand", -1)})
    assert simple.committed(partition) == 3
    simple.close()


def test_aiokafka_shares_and_commits(servers: str, group: str, filled: Callable[..., str]) -> None:
    topic = filled(partitions=4, each=5)

    async def main() -> None:
        config: dict[str, Any] = {
            "bootstrap_servers": servers,
            "group_id": group,
            "auto_offset_reset": "earliest",
            "enable_auto_commit": False,
            "session_timeout_ms": 6000,
            "heartbeat_interval_ms": 200,
            "metadata_max_age_ms": 1000,
        }
        first = AIOKafkaConsumer(topic, **config)
        second = AIOKafkaConsumer(topic, **config)
        await first.start()
        await second.start()
        seen: set[bytes] = set()
        try:
            while len(seen) < 20 or len(first.assignment()) != 2 or len(second.assignment()) != 2:
                for consumer in (first, second):
                    found = await consumer.getmany(timeout_ms=100)
                    seen.update(record.value for records in found.values() for record in records)
            await first.commit()
            await second.commit()
            assert [await first.committed(AioPartition(topic, number)) for number in range(4)] == [5] * 4
            await second.stop()
            while len(first.assignment()) != 4:
                await first.getmany(timeout_ms=100)
        finally:
            await first.stop()
            await second.stop()

    asyncio.run(asyncio.wait_for(main(), 120))
