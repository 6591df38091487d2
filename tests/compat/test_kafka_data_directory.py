"""docs/howto/move-from-kafka.md: Ottla starts on the data directory of a stopped Kafka 4.3, with its records and groups."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.testing import Broker
from tests.kit.peers import ApacheKafka
from tests.kit.wait import until

COMMITTED = {0: 100, 1: 101, 2: 102}


@pytest.mark.slow
@pytest.mark.java
def test_a_directory_of_kafka_4_is_adopted(tmp_path: Path) -> None:
    with ApacheKafka("4.3.0", data_dir=tmp_path / "kafka") as kafka:
        servers: dict[str, Any] = {"bootstrap.servers": kafka.bootstrap_servers}
        admin = AdminClient(servers)
        admin.create_topics([NewTopic("orders", 3, 1)])["orders"].result(60)
        producer = Producer(servers)
        for number in range(1500):
            producer.produce("orders", f"value-{number}", f"key-{number}", number % 3, headers={"n": str(number)})
        assert producer.flush(60) == 0
        consumer = Consumer(servers | {"group.id": "billing"})
        offsets = [TopicPartition("orders", partition, offset) for partition, offset in COMMITTED.items()]
        until(
            lambda: consumer.commit(offsets=offsets, asynchronous=False),
            "a coordinator for the group",
            ignoring=KafkaException,
        )
        consumer.close()
    with Broker(data_dir=tmp_path / "kafka") as broker:
        servers = {"bootstrap.servers": broker.bootstrap_servers}
        consumer = Consumer(servers | {"group.id": "billing", "enable.auto.commit": False})
        partitions = [TopicPartition("orders", partition) for partition in COMMITTED]
        assert {each.partition: each.offset for each in consumer.committed(partitions, 60)} == COMMITTED
        consumer.assign([TopicPartition("orders", partition, 0) for partition in COMMITTED])
        found: dict[bytes | None, tuple[int | None, int | None]] = {}
        while len(found) < 1500:
            message = consumer.poll(30)
            assert message is not None, f"only {len(found)} records"
            assert message.error() is None, message.error()
            found[message.value()] = (message.partition(), message.offset())
        consumer.close()
        assert found == {b"value-%d" % number: (number % 3, number // 3) for number in range(1500)}
        producer = Producer(servers | {"enable.idempotence": True})
        appended: list[int | None] = []
        producer.produce("orders", "new", partition=0, callback=lambda error, message: appended.append(message.offset()))
        assert producer.flush(60) == 0
        assert appended == [500]
