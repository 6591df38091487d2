"""confluent-kafka (librdkafka): the admin calls. F2, F10, F17, F67, DeleteRecords (L10)."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicCollection, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ConfigSource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourceType,
)

from tests.kit.present import present
from tests.kit.subject import broker_count, soon


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def fresh() -> str:
    return f"admin-{uuid.uuid4().hex[:8]}"


def code_of(future: object) -> int:
    with pytest.raises(KafkaException) as refused:
        future.result(60)  # type: ignore[attr-defined]
    return int(refused.value.args[0].code())


def fill(bootstrap: str, topic: str, count: int, partition: int = 0) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(topic, str(number), partition=partition)
    assert producer.flush(60) == 0


def test_create_list_describe_delete(admin: AdminClient) -> None:
    name = fresh()
    admin.create_topics([NewTopic(name, 3, 1)])[name].result(60)
    assert soon(lambda: name in admin.list_topics(timeout=60).topics)
    assert len(admin.list_topics(timeout=60).topics[name].partitions) == 3
    description = admin.describe_topics(TopicCollection([name]))[name].result(60)
    assert not description.is_internal
    assert [partition.id for partition in description.partitions] == [0, 1, 2]
    for partition in description.partitions:
        assert partition.leader.id == partition.replicas[0].id == partition.isr[0].id
    assert str(description.topic_id) not in ("", "AAAAAAAAAAAAAAAAAAAAAA")
    admin.delete_topics([name])[name].result(60)
    assert soon(lambda: name not in admin.list_topics(timeout=60).topics)


def test_a_created_topic_is_usable_at_once(admin: AdminClient, bootstrap: str) -> None:
    for _ in range(5):
        name = fresh()
        admin.create_topics([NewTopic(name, 4, 1)])[name].result(60)
        fill(bootstrap, name, 10, partition=3)


def test_create_refusals(admin: AdminClient, topic: str) -> None:
    def create(name: str, partitions: int = 1, factor: int = 1, **config: Any) -> int:
        return code_of(admin.create_topics([NewTopic(name, partitions, factor, config=config)])[name])

    assert create(topic) == KafkaError.TOPIC_ALREADY_EXISTS
    assert create("no spaces allowed") == KafkaError.TOPIC_EXCEPTION
    assert create("x" * 250) == KafkaError.TOPIC_EXCEPTION
    assert create("..") == KafkaError.TOPIC_EXCEPTION
    assert create(fresh(), partitions=0) == KafkaError.INVALID_PARTITIONS
    assert create(fresh(), factor=5) == KafkaError.INVALID_REPLICATION_FACTOR
    assert create(fresh(), **{"retention.ms": "soon"}) == KafkaError.INVALID_CONFIG  # type: ignore[arg-type]
    assert create(fresh(), **{"retention.sm": "1"}) == KafkaError.INVALID_CONFIG  # type: ignore[arg-type]


def test_validate_only_creates_nothing(admin: AdminClient) -> None:
    name = fresh()
    admin.create_topics([NewTopic(name, 1, 1)], validate_only=True)[name].result(60)
    assert name not in admin.list_topics(timeout=60).topics


def test_explicit_assignment(admin: AdminClient) -> None:
    broker = next(iter(admin.list_topics(timeout=60).brokers))
    name = fresh()
    admin.create_topics([NewTopic(name, num_partitions=2, replica_assignment=[[broker], [broker]])])[name].result(60)
    assert soon(lambda: name in admin.list_topics(timeout=60).topics)
    assert len(admin.list_topics(timeout=60).topics[name].partitions) == 2


def test_delete_unknown(admin: AdminClient) -> None:
    name = fresh()
    assert code_of(admin.delete_topics([name])[name]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def latest(admin: AdminClient, name: str) -> int | None:
    """None while this client knows only of a former leader, or none."""
    partition = TopicPartition(name, 0)
    try:
        return int(admin.list_offsets({partition: OffsetSpec.latest()})[partition].result(60).offset)
    except KafkaException as error:
        stale = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._NOENT)
        if broker_count() == 1 or error.args[0].code() not in stale:
            raise
        return None


def test_create_again_after_delete_starts_empty(admin: AdminClient, bootstrap: str) -> None:
    name = fresh()
    for _ in range(3):
        assert soon(lambda: name not in admin.list_topics(timeout=60).topics)
        admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
        fill(bootstrap, name, 5)
        assert soon(lambda: latest(admin, name) == 5)
        admin.delete_topics([name])[name].result(60)


def test_create_partitions(admin: AdminClient, topic: str, bootstrap: str) -> None:
    admin.create_partitions([NewPartitions(topic, 5)])[topic].result(60)
    assert soon(lambda: len(admin.list_topics(timeout=60).topics[topic].partitions) == 5)
    fill(bootstrap, topic, 3, partition=4)
    assert code_of(admin.create_partitions([NewPartitions(topic, 5)])[topic]) == KafkaError.INVALID_PARTITIONS
    assert code_of(admin.create_partitions([NewPartitions(topic, 2)])[topic]) == KafkaError.INVALID_PARTITIONS


def test_unknown_topic_is_created_on_first_use(admin: AdminClient, bootstrap: str) -> None:
    """F17: `auto.create.topics.enable` is on by default, and only a client that asks for it gets it."""
    produced, only_read = fresh(), fresh()
    fill(bootstrap, produced, 3)
    assert produced in admin.list_topics(timeout=60).topics
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "x", "allow.auto.create.topics": False})
    reader.assign([TopicPartition(only_read, 0, 0)])
    reader.poll(1)  # librdkafka keeps quiet about it for its own 30 s
    reader.close()
    assert only_read not in admin.list_topics(timeout=60).topics


def test_topic_configs(admin: AdminClient, new_topic: Callable[..., str]) -> None:
    """F67: what was set says so, the rest is a default with its value."""
    name = new_topic(**{"retention.ms": "123456", "cleanup.policy": "compact,delete"})
    resource = ConfigResource(ResourceType.TOPIC, name)

    def configs() -> dict[str, ConfigEntry]:
        return admin.describe_configs([resource])[resource].result(60)

    found = configs()
    assert found["retention.ms"].value == "123456"
    assert found["retention.ms"].source == ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    assert set(present(found["cleanup.policy"].value).split(",")) == {"compact", "delete"}
    assert found["segment.bytes"].value == "1073741824"
    assert found["segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    assert found["max.message.bytes"].value == "1048588"

    def alter(key: str, value: str | None, operation: AlterConfigOpType) -> object:
        changed = ConfigResource(ResourceType.TOPIC, name)
        changed.add_incremental_config(ConfigEntry(key, value, incremental_operation=operation))
        return admin.incremental_alter_configs([changed])[changed]

    alter("segment.bytes", "2000000", AlterConfigOpType.SET).result(60)  # type: ignore[attr-defined]
    alter("cleanup.policy", "compact", AlterConfigOpType.SUBTRACT).result(60)  # type: ignore[attr-defined]
    alter("retention.ms", None, AlterConfigOpType.DELETE).result(60)  # type: ignore[attr-defined]
    assert soon(lambda: configs()["retention.ms"].value == "604800000")
    found = configs()
    assert (found["segment.bytes"].value, found["cleanup.policy"].value) == ("2000000", "delete")
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("604800000", ConfigSource.DEFAULT_CONFIG.value)
    assert code_of(alter("segment.bytes", "minus one", AlterConfigOpType.SET)) == KafkaError.INVALID_CONFIG
    assert code_of(alter("no.such.setting", "1", AlterConfigOpType.SET)) == KafkaError.INVALID_CONFIG


def test_broker_configs(admin: AdminClient) -> None:
    broker = next(iter(admin.list_topics(timeout=60).brokers))
    resource = ConfigResource(ResourceType.BROKER, str(broker))
    found = admin.describe_configs([resource])[resource].result(60)
    assert found["log.segment.bytes"].value == "1073741824"
    assert found["log.segment.bytes"].source == ConfigSource.DEFAULT_CONFIG.value
    assert found["num.partitions"].is_read_only
    assert not found["log.retention.ms"].is_read_only
    assert found["log.dirs"].source == ConfigSource.STATIC_BROKER_CONFIG.value


def test_configs_of_an_unknown_topic(admin: AdminClient) -> None:
    resource = ConfigResource(ResourceType.TOPIC, fresh())
    assert code_of(admin.describe_configs([resource])[resource]) == KafkaError.UNKNOWN_TOPIC_OR_PART


def test_delete_records(admin: AdminClient, bootstrap: str, topic: str) -> None:
    """L10, F12."""
    fill(bootstrap, topic, 10)
    target = TopicPartition(topic, 0, 4)
    assert admin.delete_records([target])[target].result(60).low_watermark == 4
    reader = Consumer({"bootstrap.servers": bootstrap, "group.id": "unused", "enable.auto.commit": False})
    assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=60) == (4, 10)
    reader.assign([TopicPartition(topic, 0, 4)])
    message = reader.poll(60)
    assert message is not None
    assert (message.offset(), message.value()) == (4, b"4")
    reader.close()
    beyond = TopicPartition(topic, 0, 11)
    assert code_of(admin.delete_records([beyond])[beyond]) == KafkaError.OFFSET_OUT_OF_RANGE
    everything = TopicPartition(topic, 0, -1)
    assert admin.delete_records([everything])[everything].result(60).low_watermark == 10


def test_list_offsets(admin: AdminClient, bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap})
    for timestamp in (1_000, 9_000, 4_000):
        producer.produce(topic, b"x", timestamp=timestamp)
    assert producer.flush(60) == 0
    partition = TopicPartition(topic, 0)

    def offset(spec: OffsetSpec) -> tuple[int, int]:
        found = admin.list_offsets({partition: spec})[partition].result(60)
        return found.offset, found.timestamp

    assert offset(OffsetSpec.earliest())[0] == 0
    assert offset(OffsetSpec.latest())[0] == 3
    assert offset(OffsetSpec.max_timestamp()) == (1, 9_000)
    assert offset(OffsetSpec.for_timestamp(3_000)) == (1, 9_000)
    assert offset(OffsetSpec.for_timestamp(9_001))[0] == -1


def test_describe_cluster(admin: AdminClient) -> None:
    cluster = admin.describe_cluster().result(60)
    assert cluster.cluster_id == admin.list_topics(timeout=60).cluster_id
    assert cluster.cluster_id
    assert [node.id for node in cluster.nodes] == list(admin.list_topics(timeout=60).brokers)
    assert cluster.controller.id in [node.id for node in cluster.nodes]


def test_produce_to_a_partition_that_is_not_there(bootstrap: str, topic: str) -> None:
    producer = Producer({"bootstrap.servers": bootstrap, "message.timeout.ms": 60_000})
    errors = []
    try:
        producer.produce(topic, b"x", partition=7, on_delivery=lambda error, _: errors.append(present(error).code()))
        producer.flush(60)
    except KafkaException as refused:
        errors.append(refused.args[0].code())
    assert errors == [KafkaError._UNKNOWN_PARTITION]
