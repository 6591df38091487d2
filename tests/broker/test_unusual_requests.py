"""Well-formed requests that ask for nonsense: the codes are those that Apache Kafka 4.3 answers (W05, W06, L10)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

INT64_MAX = 2**63 - 1


def new_topic(name: str, partitions: int = 1, factor: int = 1, **config: str) -> CreateTopicsRequest:
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
