"""kafka-python 3: records and admin calls without a group. It negotiates each API's version with ApiVersions."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource, ConfigResourceType, NewPartitions, NewTopic
from kafka.errors import (
    InvalidPartitionsError,
    MessageSizeTooLargeError,
    OffsetOutOfRangeError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from tests.kit.subject import soon

CODECS = [None, "gzip", "snappy", "lz4", "zstd"]


def produce(bootstrap: str, topic: str, records: list[dict[str, Any]], **config: Any) -> list[Any]:
    producer = KafkaProducer(bootstrap_servers=bootstrap, linger_ms=5, **config)
    try:
        sent = [producer.send(topic, **{"partition": 0, **record}) for record in records]
        producer.flush(60)
        return [each.get(60) for each in sent]
    finally:
        producer.close()


def consume(bootstrap: str, topic: str, count: int, *, start: int = 0, **config: Any) -> list[Any]:
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, enable_auto_commit=False, **config)
    try:
        partition = TopicPartition(topic, 0)
        consumer.assign([partition])
        consumer.seek(partition, start)
        records: list[Any] = []
        deadline = time.monotonic() + 60
        while len(records) < count and time.monotonic() < deadline:
            for batch in consumer.poll(1000).values():
                records += batch
        assert len(records) == count
        return records
    finally:
        consumer.close()


@pytest.fixture
def admin(bootstrap: str) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=bootstrap)
    yield client
    client.close()


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("acks", [0, 1, "all"])
def test_what_goes_in_comes_out_in_order(bootstrap: str, topic: str, codec: str | None, acks: object) -> None:
    values = [f"value {number} ".encode() * 20 for number in range(300)]
    config = {"enable_idempotence": False, "acks": acks, "compression_type": codec}
    metadata = produce(bootstrap, topic, [{"value": value} for value in values], **config)
    if acks != 0:
        assert [each.offset for each in metadata] == list(range(len(values)))
    records = consume(bootstrap, topic, len(values))
    assert [record.value for record in records] == values
    assert [record.offset for record in records] == list(range(len(values)))


@pytest.mark.parametrize("codec", CODECS)
def test_keys_headers_timestamps_nulls_and_empties(bootstrap: str, topic: str, codec: str | None) -> None:
    records: list[dict[str, Any]] = [
        {"key": b"k", "value": b"v", "timestamp_ms": 1_700_000_000_123, "headers": [("h", b"1"), ("h", b"2")]},
        {"key": b"tombstone", "value": None, "timestamp_ms": 1_700_000_000_124},
        {"key": b"", "value": b"", "timestamp_ms": 1_700_000_000_125},
        {"key": "ключ 🔑".encode(), "value": bytes(range(256)), "timestamp_ms": 1_700_000_000_001},
    ]
    produce(bootstrap, topic, records, compression_type=codec)
    for record, found in zip(records, consume(bootstrap, topic, len(records)), strict=True):
        assert (found.key, found.value, found.timestamp) == (record["key"], record["value"], record["timestamp_ms"])
        assert found.timestamp_type == 0
        assert list(found.headers) == record.get("headers", [])


def test_idempotent_producer(bootstrap: str, topic: str) -> None:
    values = [str(number).encode() for number in range(1_000)]
    produce(bootstrap, topic, [{"value": value} for value in values], enable_idempotence=True, batch_size=200)
    assert [record.value for record in consume(bootstrap, topic, len(values))] == values


def test_big_records(bootstrap: str, new_topic: Callable[..., str]) -> None:
    topic = new_topic(**{"max.message.bytes": "6000000"})
    values = [bytes([number]) * 3_000_000 for number in range(3)]
    produce(bootstrap, topic, [{"value": value} for value in values], max_request_size=6_000_000)
    found = consume(bootstrap, topic, 3, fetch_max_bytes=10_000, max_partition_fetch_bytes=10_000)
    assert [record.value for record in found] == values


def test_too_large_is_refused(bootstrap: str, topic: str) -> None:
    with pytest.raises(MessageSizeTooLargeError):
        produce(bootstrap, topic, [{"value": bytes(1_100_000)}], max_request_size=5_000_000)


def test_offsets(bootstrap: str, topic: str) -> None:
    """F32."""
    now = int(time.time() * 1000)
    produce(bootstrap, topic, [{"value": b"x", "timestamp_ms": now + each} for each in (1_000, 2_000, 3_000)])
    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    assert consumer.beginning_offsets([partition]) == {partition: 0}
    assert consumer.end_offsets([partition]) == {partition: 3}
    found = consumer.offsets_for_times({partition: now + 1_500})[partition]
    assert (found.offset, found.timestamp) == (1, now + 2_000)
    assert consumer.offsets_for_times({partition: now + 9_000}) == {partition: None}
    assert consumer.partitions_for_topic(topic) == {0}
    consumer.close()


def test_offset_out_of_range(bootstrap: str, topic: str) -> None:
    produce(bootstrap, topic, [{"value": b"x"}])
    with pytest.raises(OffsetOutOfRangeError):
        consume(bootstrap, topic, 1, start=5, auto_offset_reset="none")


def test_topics(admin: KafkaAdminClient) -> None:
    name = f"kp-{uuid.uuid4().hex[:8]}"
    admin.create_topics([NewTopic(name, 3, 1)])
    assert soon(lambda: name in admin.list_topics())
    with pytest.raises(TopicAlreadyExistsError):
        admin.create_topics([NewTopic(name, 1, 1)])
    (described,) = admin.describe_topics([name])
    assert [partition["partition_index"] for partition in described["partitions"]] == [0, 1, 2]
    admin.create_partitions({name: NewPartitions(5)})
    assert soon(lambda: len(admin.describe_topics([name])[0]["partitions"]) == 5)
    with pytest.raises(InvalidPartitionsError):
        admin.create_partitions({name: NewPartitions(2)})
    admin.delete_topics([name])
    assert soon(lambda: name not in admin.list_topics())
    with pytest.raises(UnknownTopicOrPartitionError):
        admin.delete_topics([name])


def test_configs(admin: KafkaAdminClient, topic: str) -> None:
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    found = str(admin.describe_configs([resource], config_filter="all"))
    assert "retention.ms" in found
    assert "604800000" in found
    changed = ConfigResource(ConfigResourceType.TOPIC, topic, configs={"retention.ms": "77777"})
    admin.alter_configs([changed])
    assert soon(lambda: "77777" in str(admin.describe_configs([resource])))


def test_delete_records(admin: KafkaAdminClient, bootstrap: str, topic: str) -> None:
    """L10."""
    produce(bootstrap, topic, [{"value": str(number).encode()} for number in range(10)])
    admin.delete_records({TopicPartition(topic, 0): 4})
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=None)
    assert consumer.beginning_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 4}
    consumer.close()
    assert consume(bootstrap, topic, 6, start=4)[0].value == b"4"


def test_describe_cluster_and_log_dirs(admin: KafkaAdminClient, topic: str) -> None:
    assert admin.describe_cluster()["cluster_id"]
    assert topic in str(admin.describe_log_dirs())
