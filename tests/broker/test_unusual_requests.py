"""Well-formed requests that ask for nonsense: the codes are those that Apache Kafka 4.3 answers (W05, W06, L10)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.types import ZERO_UUID

INT64_MAX = 2**63 - 1


def new_topic(name: str, partitions: int = 1, factor: int = 1, **config: Any) -> CreateTopicsRequest:
    settings = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in config.items()]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, configs=settings)
    return CreateTopicsRequest(topics=[topic], timeout_ms=10_000)


CREATE = {
    "no name": (new_topic(""), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "a directory's name": (new_topic(".."), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "a path": (new_topic("a/b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "a zero byte": (new_topic("a\0b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "30,000 characters": (new_topic("x" * 30_000), ErrorCode.INVALID_TOPIC_EXCEPTION),
    "no partitions": (new_topic("t", 0), ErrorCode.INVALID_PARTITIONS),
    "-5 partitions": (new_topic("t", -5), ErrorCode.INVALID_PARTITIONS),
    "2^31-1 partitions": (new_topic("t", 2**31 - 1), ErrorCode.POLICY_VIOLATION),
    "32,767 replicas": (new_topic("t", 1, 32_767), ErrorCode.INVALID_REPLICATION_FACTOR),
    "-2 replicas": (new_topic("t", 1, -2), ErrorCode.INVALID_REPLICATION_FACTOR),
    "a number with a zero byte": (new_topic("t", retention_ms="1\x00000"), ErrorCode.INVALID_CONFIG),
    "a number beyond 64 bits": (new_topic("t", retention_ms=str(2**63)), ErrorCode.INVALID_CONFIG),
}


@pytest.mark.parametrize("name", CREATE)
def test_w05_topics_that_cannot_be(play: Any, name: str) -> None:
    request, code = CREATE[name]

    async def case(stage: Any) -> None:
        connection = await stage.connect()
        (result,) = (await connection.call("create_topics", 7, request)).topics
        assert (result.error_code, result.name) == (code, request.topics[0].name)
        assert result.error_message

    play(case)


def test_offsets_that_cannot_be(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        await stage.produce(connection, stage.batch(b"one"))
        for offset in (-1, -5, 2, INT64_MAX):
            assert (await stage.fetch(connection, offset)).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert (await stage.fetch(connection, 1)).error_code == ErrorCode.NONE, "the end is a place to read from"

        async def delete(offset: int, partition: int = 0) -> tuple[int, int]:
            asked = DeleteRecordsTopic(name="t", partitions=[DeleteRecordsPartition(partition_index=partition, offset=offset)])
            response = await connection.call("delete_records", 2, DeleteRecordsRequest(topics=[asked], timeout_ms=1000))
            (answer,) = response.topics[0].partitions
            return answer.error_code, answer.low_watermark

        for offset in (-2, -(2**63), 2, INT64_MAX):
            assert await delete(offset) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(0, partition=-1) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)

    play(case)


def test_w06_times_and_epochs_that_cannot_be(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        await stage.produce(connection, stage.batch(b"one"))

        async def offset_of(timestamp: int, version: int = 11) -> tuple[int, int]:
            asked = ListOffsetsTopic(name="t", partitions=[ListOffsetsPartition(partition_index=0, timestamp=timestamp)])
            response = await connection.call("list_offsets", version, ListOffsetsRequest(replica_id=-1, topics=[asked]))
            (answer,) = response.topics[0].partitions
            return answer.error_code, answer.offset

        for timestamp, version in ((-7, 11), (-(2**63), 11), (-3, 1), (-5, 8)):
            assert await offset_of(timestamp, version) == (ErrorCode.UNSUPPORTED_VERSION, -1)
        assert await offset_of(INT64_MAX) == (ErrorCode.NONE, -1)

        async def end_of(epoch: int, current: int = -1) -> tuple[int, int, int]:
            asked = OffsetForLeaderPartition(partition=0, leader_epoch=epoch, current_leader_epoch=current)
            request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])])
            (answer,) = (await connection.call("offset_for_leader_epoch", 4, request)).topics[0].partitions
            return answer.error_code, answer.leader_epoch, answer.end_offset

        assert await end_of(-1) == (ErrorCode.NONE, -1, -1)
        for epoch in (-2, -(2**31)):
            assert await end_of(epoch) == (ErrorCode.NONE, epoch, 0), "an epoch like any before the first"
        assert (await end_of(0, current=9))[0] == ErrorCode.UNKNOWN_LEADER_EPOCH

    play(case)


def test_w06_a_partition_listed_twice_gets_one_answer_and_a_topic_listed_twice_too(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        connection = await stage.connect()

        async def ask(*topics: tuple[str, list[int]], timestamp: int = -1) -> list[tuple[str, list[tuple[int, int]]]]:
            asked = [
                ListOffsetsTopic(
                    name=name, partitions=[ListOffsetsPartition(partition_index=n, timestamp=timestamp) for n in numbers]
                )
                for name, numbers in topics
            ]
            response = await connection.call("list_offsets", 7, ListOffsetsRequest(topics=asked))
            return [
                (topic.name, [(part.partition_index, part.error_code) for part in topic.partitions]) for topic in response.topics
            ]

        assert await ask(("t", [0, 0, 1])) == [("t", [(0, ErrorCode.INVALID_REQUEST), (1, ErrorCode.NONE)])]
        assert await ask(("t", [0]), ("t", [0])) == [("t", [(0, ErrorCode.INVALID_REQUEST)])]
        assert await ask(("t", [0]), ("t", [1])) == [("t", [(0, ErrorCode.NONE), (1, ErrorCode.NONE)])]
        assert await ask(("t", [])) == []
        for timestamp in (-7, -4, -100):
            assert await ask(("nix", [0]), timestamp=timestamp) == [("nix", [(0, ErrorCode.UNSUPPORTED_VERSION)])]

    play(case)


def test_a_leader_epoch_below_none_is_none_to_fetch(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        asked = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000, current_leader_epoch=-2)
        request = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic="t", partitions=[asked])])
        response = await connection.call("fetch", 12, request)
        assert response.responses[0].partitions[0].error_code == ErrorCode.NONE

    play(case)


@pytest.mark.parametrize("version", [13, 17])
@pytest.mark.parametrize("session_epoch", [-1, 0])
def test_w03_a_fetch_by_the_empty_topic_id_is_of_an_unknown_topic(play: Any, version: int, session_epoch: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        asked = FetchTopic(topic_id=ZERO_UUID, partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
        request = FetchRequest(max_wait_ms=0, session_epoch=session_epoch, topics=[asked])
        response = await connection.call("fetch", version, request)
        assert response.error_code == ErrorCode.NONE
        (answer,) = response.responses
        assert (answer.topic_id, [each.error_code for each in answer.partitions]) == (ZERO_UUID, [ErrorCode.UNKNOWN_TOPIC_ID])

    play(case)


@pytest.mark.parametrize(
    ("policy", "code"),
    [("", ErrorCode.NONE), ("compact,delete", ErrorCode.NONE), ("compact", ErrorCode.POLICY_VIOLATION)],
)
def test_l10_records_of_a_topic_that_is_only_compacted_are_not_deleted(play: Any, policy: str, code: ErrorCode) -> None:
    async def case(stage: Any) -> None:
        connection = await stage.connect()
        created = await connection.call("create_topics", 7, new_topic("kept", cleanup_policy=policy))
        assert created.topics[0].error_code == ErrorCode.NONE
        asked = DeleteRecordsTopic(name="kept", partitions=[DeleteRecordsPartition(partition_index=0, offset=0)])
        response = await connection.call("delete_records", 2, DeleteRecordsRequest(topics=[asked], timeout_ms=1000))
        assert response.topics[0].partitions[0].error_code == code

    play(case)


def test_an_empty_transactional_id_says_nothing_of_records_without_a_transaction(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        request = stage.produce_request(stage.batch(b"one"))
        request.transactional_id = ""
        response = await connection.call("produce", 9, request)
        assert response.responses[0].partition_responses[0].error_code == ErrorCode.NONE

    play(case)


@pytest.mark.parametrize("name", ["", "a b", ".."])
def test_producers_of_a_topic_that_could_not_be_called_so(play: Any, name: str) -> None:
    async def case(stage: Any) -> None:
        connection = await stage.connect()
        request = DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0])])
        (topic,) = (await connection.call("describe_producers", 0, request)).topics
        assert (topic.name, topic.partitions[0].error_code) == (name, ErrorCode.INVALID_TOPIC_EXCEPTION)

    play(case)


@pytest.mark.parametrize(("version", "code"), [(11, ErrorCode.INVALID_REQUEST), (12, -1), (13, -1)])
def test_metadata_of_a_topic_without_name_and_id(play: Any, version: int, code: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        asked = [MetadataRequestTopic(name="t"), MetadataRequestTopic(name=None)]
        response = await connection.call("metadata", version, MetadataRequest(topics=asked))
        assert [(topic.error_code, topic.name) for topic in response.topics] == [(code, "t"), (code, "")]
        assert response.error_code == (code if version >= 13 else ErrorCode.NONE)

    play(case)


@pytest.mark.parametrize(("version", "protocol"), [(5, ""), (6, ""), (7, None), (9, None)])
def test_an_error_of_join_group_names_no_protocol(play: Any, version: int, protocol: str | None) -> None:
    async def case(stage: Any) -> None:
        connection = await stage.connect()

        async def join(group: str, **given: Any) -> Any:
            protocols = [JoinGroupRequestProtocol(name="range", metadata=b"")]
            request = JoinGroupRequest(
                group_id=group, session_timeout_ms=10_000, rebalance_timeout_ms=1, protocol_type="consumer", protocols=protocols
            )
            for name, value in given.items():
                setattr(request, name, value)
            answer = await connection.call("join_group", version, request)
            return answer.error_code, answer.protocol_name

        assert await join("g") == (ErrorCode.NOT_COORDINATOR, protocol)
        await connection.call("find_coordinator", 3, FindCoordinatorRequest(key="g"))
        assert await join("g", member_id="nobody") == (ErrorCode.UNKNOWN_MEMBER_ID, protocol)
        assert await join("g", session_timeout_ms=1) == (ErrorCode.INVALID_SESSION_TIMEOUT, protocol)
        assert await join("g") == (ErrorCode.MEMBER_ID_REQUIRED, protocol)
        assert await join("") == (ErrorCode.INVALID_GROUP_ID, protocol)

    play(case)


def test_a_group_without_name_is_not_looked_for(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await stage.connect()
        deleted = await connection.call("offset_delete", 0, OffsetDeleteRequest(group_id=""))
        assert deleted.error_code == ErrorCode.INVALID_GROUP_ID
        described = await connection.call("consumer_group_describe", 1, ConsumerGroupDescribeRequest(group_ids=["", "nobody"]))
        codes = {group.group_id: group.error_code for group in described.groups}
        assert codes[""] == ErrorCode.INVALID_GROUP_ID != codes["nobody"]

    play(case)
