"""kafka-python and aiokafka in groups."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from kafka import KafkaAdminClient, KafkaConsumer, TopicPartition
from kafka.structs import OffsetAndMetadata

from tests.kit.wait import until


def test_kafka_python_shares_and_commits(servers: str, group: str, filled: Callable[..., str]) -> None:
    topic = filled(partitions=4, each=5)
    config: dict[str, Any] = {
        "bootstrap_servers": servers,
        "group_id": group,
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": 30000,
        "heartbeat_interval_ms": 200,
    }
    consumers = [KafkaConsumer(topic, **config) for _ in range(2)]
    for consumer in consumers:
        # Its leader would assign nothing of a topic whose partitions it does not know yet, and leave it at that.
        assert consumer.partitions_for_topic(topic) == {0, 1, 2, 3}
    seen: set[bytes] = set()
    is_shared = threading.Event()

    def read(consumer: KafkaConsumer) -> None:
        for records in consumer.poll(500).values():
            seen.update(record.value for record in records)

    def read_until_shared(consumer: KafkaConsumer) -> None:
        while not is_shared.is_set():
            read(consumer)

    # Each in a thread of its own, never in turns: a join that is over between two polls of its consumer is forgotten, and begun
    # anew by the second. If it is the leader's, that is another rebalance, which is over when the other one polls, and so on.
    with ThreadPoolExecutor(len(consumers)) as pool:
        readers = [pool.submit(read_until_shared, consumer) for consumer in consumers]

        def shared() -> bool:
            for reader in readers:
                if reader.done():
                    reader.result()
            return [len(consumer.assignment()) for consumer in consumers] == [2, 2]

        try:
            until(shared)
        finally:
            is_shared.set()

    def has_read_its_own(consumer: KafkaConsumer) -> bool:
        # Who got a partition from the other one begins it anew, since nothing was committed.
        read(consumer)
        return all(consumer.position(partition) == 5 for partition in consumer.assignment())

    for consumer in consumers:
        until(partial(has_read_its_own, consumer))
        consumer.commit()
    assert len(seen) == 20
    admin = KafkaAdminClient(bootstrap_servers=servers)
    offsets = admin.list_group_offsets([group])[group] if hasattr(admin, "list_group_offsets") else None
    if offsets is None:
        offsets = admin.list_consumer_group_offsets(group)
    assert {partition.partition: found.offset for partition, found in offsets.items()} == dict.fromkeys(range(4), 5)
    consumers[0].close()
    survivor = consumers[1]
    until(lambda: (survivor.poll(500), len(survivor.assignment()) == 4)[1])
    survivor.close()
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
            "session_timeout_ms": 30000,
            "heartbeat_interval_ms": 200,
            "metadata_max_age_ms": 1000,
        }
        first = AIOKafkaConsumer(topic, **config)
        second = AIOKafkaConsumer(topic, **config)
        await first.start()
        await second.start()
        seen: set[bytes] = set()

        async def read(*consumers: AIOKafkaConsumer) -> None:
            for consumer in consumers:
                found = await consumer.getmany(timeout_ms=100)
                seen.update(record.value for records in found.values() for record in records)

        try:
            while len(first.assignment()) != 2 or len(second.assignment()) != 2:
                await read(first, second)
            for consumer in (first, second):
                # Who got a partition from the other one begins it anew, since nothing was committed.
                for partition in consumer.assignment():
                    while await consumer.position(partition) != 5:
                        await read(consumer)
            assert len(seen) == 20
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
