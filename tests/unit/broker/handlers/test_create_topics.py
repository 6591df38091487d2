from __future__ import annotations

from typing import Any

import pytest

from ottla.cluster.requests import NewTopic
from ottla.cluster.settings import ConfigSource
from ottla.errors import ErrorCode
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version


def topic(name: str, partitions: int = 1, replicas: int = 1, **fields: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas, **fields)


@every_version("create_topics")
def test_in_every_version_the_topic_is_there_when_the_reply_comes(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        new = topic("a", 3, configs=[CreatableTopicConfig(name="retention.ms", value="5")])
        response = await broker.ask("create_topics", version, CreateTopicsRequest(topics=[new]))
        (result,) = response.topics
        assert (result.name, result.error_code) == ("a", 0)
        created = broker.image.topics["a"]
        assert len(created.partitions) == 3
        assert created.config == {"retention.ms": "5"}
        if version >= 5:
            assert (result.num_partitions, result.replication_factor) == (3, 1)
            configs = {config.name: config for config in result.configs}
            assert (configs["retention.ms"].value, configs["retention.ms"].config_source) == ("5", ConfigSource.TOPIC_CONFIG)
            assert configs["segment.bytes"].value == "1073741824"
            assert configs["segment.bytes"].config_source == ConfigSource.DEFAULT_CONFIG
        if version >= 7:
            assert result.topic_id == created.topic_id

    on_broker(test)


@every_version("create_topics")
def test_w05_each_topic_has_its_own_error(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("old"))
        assignment = [CreatableReplicaAssignment(partition_index=0, broker_ids=[9])]
        request = CreateTopicsRequest(
            topics=[
                topic("a b"),
                topic("old"),
                topic("c", configs=[CreatableTopicConfig(name="nonsense", value="1")]),
                topic("d", replicas=2),
                topic("e", partitions=0),
                topic("f", -1, -1, assignments=assignment),
                topic("good"),
            ]
        )
        response = await broker.ask("create_topics", version, request)
        assert [result.error_code for result in response.topics] == [
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            ErrorCode.TOPIC_ALREADY_EXISTS,
            ErrorCode.INVALID_CONFIG,
            ErrorCode.INVALID_REPLICATION_FACTOR,
            ErrorCode.INVALID_PARTITIONS,
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            0,
        ]
        if version >= 1:
            assert all(bool(result.error_message) == bool(result.error_code) for result in response.topics)
        assert set(broker.image.topics) == {"old", "good"}

    on_broker(test)


@pytest.mark.parametrize("version", range(1, 8))
def test_w05_validate_only_changes_nothing(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        request = CreateTopicsRequest(topics=[topic("a"), topic("b", replicas=9)], validate_only=True)
        response = await broker.ask("create_topics", version, request)
        assert [result.error_code for result in response.topics] == [0, ErrorCode.INVALID_REPLICATION_FACTOR]
        assert broker.image.topics == {}
        assert await broker.store.children("/brokers/topics") == []

    on_broker(test)


def test_minus_one_takes_the_brokers_defaults() -> None:
    async def test(broker: MetadataBroker) -> None:
        response = await broker.ask("create_topics", 5, CreateTopicsRequest(topics=[topic("a", -1, -1)]))
        assert (response.topics[0].num_partitions, response.topics[0].replication_factor) == (7, 1)

    on_broker(test, {"num.partitions": "7"})


def test_a_name_twice_in_a_request_is_refused_and_answered_once() -> None:
    async def test(broker: MetadataBroker) -> None:
        response = await broker.ask("create_topics", 7, CreateTopicsRequest(topics=[topic("a"), topic("a"), topic("b")]))
        assert [(result.name, result.error_code) for result in response.topics] == [("a", ErrorCode.INVALID_REQUEST), ("b", 0)]

    on_broker(test)


def test_an_assignment_of_ones_own() -> None:
    async def test(broker: MetadataBroker) -> None:
        assignments = [CreatableReplicaAssignment(partition_index=number, broker_ids=[1]) for number in (1, 0)]
        response = await broker.ask("create_topics", 4, CreateTopicsRequest(topics=[topic("a", -1, -1, assignments=assignments)]))
        assert response.topics[0].error_code == 0
        assert len(broker.image.topics["a"].partitions) == 2

    on_broker(test)
