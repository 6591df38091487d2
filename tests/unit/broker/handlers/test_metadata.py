from __future__ import annotations

from typing import Any

import pytest

from ottla.cluster.requests import NewTopic
from ottla.errors import ErrorCode
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.types import ZERO_UUID
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version


def named(*names: str, **fields: Any) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=name) for name in names], **fields)


@every_version("metadata")
def test_brokers_and_all_topics_in_every_version(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a", 2), NewTopic("__consumer_offsets", 1))
        request = MetadataRequest(topics=None if version else [])
        response = await broker.ask("metadata", version, request)
        assert [(node.node_id, node.host, node.port) for node in response.brokers] == [(1, "127.0.0.1", 9092)]
        a, offsets = response.topics
        assert (a.error_code, a.name, len(a.partitions)) == (0, "a", 2)
        part = a.partitions[1]
        assert (part.error_code, part.partition_index, part.leader_id) == (0, 1, 1)
        assert (part.replica_nodes, part.isr_nodes, part.offline_replicas) == ([1], [1], [])
        if version >= 1:
            assert response.controller_id == 1
            assert (a.is_internal, offsets.is_internal) == (False, True)
        if version >= 2:
            assert response.cluster_id == broker.image.cluster_id
        if version >= 7:
            assert part.leader_epoch == 0
        if version >= 10:
            assert a.topic_id == broker.image.topics["a"].topic_id
        if version >= 8:
            assert a.topic_authorized_operations == -(2**31), "not asked for"

    on_broker(test)


@pytest.mark.parametrize("version", range(1, 14))
def test_an_empty_list_means_no_topics_from_version_1_on(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a"))
        response = await broker.ask("metadata", version, MetadataRequest(topics=[]))
        assert response.topics == []
        assert len(response.brokers) == 1

    on_broker(test)


@every_version("metadata")
def test_f17_a_missing_topic_is_created_and_usable_at_once(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        response = await broker.ask("metadata", version, named("new"))
        (topic,) = response.topics
        assert (topic.error_code, topic.name, len(topic.partitions)) == (0, "new", 3)
        assert topic.partitions[0].leader_id == 1
        assert "new" in broker.image.topics

    on_broker(test, {"num.partitions": "3"})


@pytest.mark.parametrize(("broker_allows", "client_allows"), [(True, False), (False, True), (False, False)])
def test_w05_a_topic_is_created_only_if_both_sides_allow_it(broker_allows: bool, client_allows: bool) -> None:
    async def test(broker: MetadataBroker) -> None:
        response = await broker.ask("metadata", 9, named("new", allow_auto_topic_creation=client_allows))
        assert [topic.error_code for topic in response.topics] == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert broker.image.topics == {}

    on_broker(test, {"auto.create.topics.enable": str(broker_allows).lower()})


def test_asking_for_all_topics_creates_none_and_a_name_asked_twice_is_answered_once() -> None:
    async def test(broker: MetadataBroker) -> None:
        assert (await broker.ask("metadata", 12, MetadataRequest(topics=None))).topics == []
        response = await broker.ask("metadata", 12, named("a", "a"))
        assert [topic.name for topic in response.topics] == ["a"]

    on_broker(test)


@pytest.mark.parametrize("allowed", [True, False])
def test_names_that_cannot_be_are_told_so(allowed: bool) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a.b"))
        response = await broker.ask("metadata", 12, named("b d", "a_b", "good", allow_auto_topic_creation=allowed))
        codes = [topic.error_code for topic in response.topics]
        invalid, unknown = ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert codes == ([invalid, invalid, 0] if allowed else [invalid, unknown, unknown])
        assert [topic.name for topic in response.topics] == ["b d", "a_b", "good"]

    on_broker(test)


def test_internal_topics_are_not_created_on_the_way() -> None:
    async def test(broker: MetadataBroker) -> None:
        response = await broker.ask("metadata", 12, named("__consumer_offsets", "a"))
        assert [(topic.error_code, topic.is_internal) for topic in response.topics] == [
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, True),
            (0, False),
        ]
        assert set(broker.image.topics) == {"a"}

    on_broker(test)


def test_auto_creation_that_cannot_be_tells_why() -> None:
    async def test(broker: MetadataBroker) -> None:
        (topic,) = (await broker.ask("metadata", 12, named("t"))).topics
        assert topic.error_code == ErrorCode.INVALID_REPLICATION_FACTOR

    on_broker(test, {"default.replication.factor": "3"})


@pytest.mark.parametrize("version", [12, 13])
def test_topics_by_id(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        (topic,) = await broker.create(NewTopic("a"))
        asked = [
            MetadataRequestTopic(topic_id=topic.topic_id, name=None),
            MetadataRequestTopic(topic_id=b"\x07" * 16, name=None),
        ]
        response = await broker.ask("metadata", version, MetadataRequest(topics=asked))
        assert [(found.error_code, found.name, found.topic_id) for found in response.topics] == [
            (0, "a", topic.topic_id),
            (ErrorCode.UNKNOWN_TOPIC_ID, None, b"\x07" * 16),
        ]
        assert len(broker.image.topics) == 1, "an id creates nothing"

    on_broker(test)


@pytest.mark.parametrize("version", [10, 11])
def test_ids_and_null_names_are_refused_before_version_12(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        for asked in (MetadataRequestTopic(topic_id=b"\x07" * 16, name="a"), MetadataRequestTopic(topic_id=ZERO_UUID, name=None)):
            response = await broker.ask("metadata", version, MetadataRequest(topics=[asked]))
            assert [topic.error_code for topic in response.topics] == [ErrorCode.INVALID_REQUEST]
        assert broker.image.topics == {}

    on_broker(test)


def test_addresses_are_those_of_the_listener_the_client_came_by() -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a"))
        response = await broker.ask("metadata", 12, named("a"), listener="OUTSIDE")
        assert [(node.host, node.port) for node in response.brokers] == [("example.org", 443)]
        for version, code in ((5, ErrorCode.LEADER_NOT_AVAILABLE), (6, ErrorCode.LISTENER_NOT_FOUND)):
            response = await broker.ask("metadata", version, named("a"), listener="GONE")
            part = response.topics[0].partitions[0]
            assert (part.error_code, part.leader_id, part.offline_replicas) == (code, -1, [1])
            assert response.brokers == []

    on_broker(test)


@pytest.mark.parametrize("version", range(8, 14))
def test_authorized_operations_are_all_if_asked_for(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a"))
        request = named("a", include_topic_authorized_operations=True, include_cluster_authorized_operations=version <= 10)
        response = await broker.ask("metadata", version, request)
        assert response.topics[0].topic_authorized_operations == 0b110111111000
        if version <= 10:
            assert response.cluster_authorized_operations == 0b1111110100000

    on_broker(test)
