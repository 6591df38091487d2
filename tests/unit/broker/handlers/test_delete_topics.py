from __future__ import annotations

import pytest

from ottla.cluster.requests import NewTopic
from ottla.errors import ErrorCode
from ottla.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.kit.admin import MetadataBroker, on_broker
from tests.kit.handlers import every_version


def by_name(version: int, *names: str) -> DeleteTopicsRequest:
    if version < 6:
        return DeleteTopicsRequest(topic_names=list(names))
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names])


@every_version("delete_topics")
def test_by_name_in_every_version(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        a, _ = await broker.create(NewTopic("a", 3), NewTopic("b"))
        response = await broker.ask("delete_topics", version, by_name(version, "a", "missing"))
        assert [(result.name, result.error_code) for result in response.responses] == [
            ("a", 0),
            ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]
        if version >= 6:
            assert response.responses[0].topic_id == a.topic_id
        assert set(broker.image.topics) == {"b"}
        assert await broker.store.children("/brokers/topics") == ["b"]
        assert await broker.store.children("/config/topics") == ["b"]

    on_broker(test)


@every_version("delete_topics")
def test_where_deletion_is_disabled(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        await broker.create(NewTopic("a"))
        response = await broker.ask("delete_topics", version, by_name(version, "a"))
        expected = ErrorCode.TOPIC_DELETION_DISABLED if version >= 3 else ErrorCode.INVALID_REQUEST
        assert response.responses[0].error_code == expected
        assert "a" in broker.image.topics

    on_broker(test, {"delete.topic.enable": "false"})


def test_by_id_from_version_6_on() -> None:
    async def test(broker: MetadataBroker) -> None:
        (a,) = await broker.create(NewTopic("a"))
        states = [
            DeleteTopicState(name=None, topic_id=a.topic_id),
            DeleteTopicState(name=None, topic_id=b"\x09" * 16),
            DeleteTopicState(name="a", topic_id=a.topic_id),
            DeleteTopicState(name=None),
        ]
        response = await broker.ask("delete_topics", 6, DeleteTopicsRequest(topics=states))
        assert [(result.name, result.error_code) for result in response.responses] == [
            ("a", 0),
            (None, ErrorCode.UNKNOWN_TOPIC_ID),
            ("a", ErrorCode.INVALID_REQUEST),
            (None, ErrorCode.INVALID_REQUEST),
        ]
        assert broker.image.topics == {}

    on_broker(test)


@pytest.mark.parametrize("version", [1, 6])
def test_c08_a_topic_made_again_has_another_id(version: int) -> None:
    async def test(broker: MetadataBroker) -> None:
        (first,) = await broker.create(NewTopic("a"))
        await broker.ask("delete_topics", version, by_name(version, "a"))
        (second,) = await broker.create(NewTopic("a"))
        assert first.topic_id != second.topic_id
        assert broker.image.topic_by_id(first.topic_id) is None

    on_broker(test)
