"""ListOffsets, OffsetForLeaderEpoch, DeleteRecords, DescribeLogDirs on the wire (W06, R08, L10)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.protocol.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from ottla.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla.records.record import build_batch

NOW_MS = 1_700_000_000_000


async def look_up(
    connection: Any, timestamp: int, *, version: int = 7, epoch: int = -1, isolation_level: int = 0, partition: int = 0
) -> ListOffsetsPartitionResponse:
    asked = ListOffsetsPartition(partition_index=partition, current_leader_epoch=epoch, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=[ListOffsetsTopic(name="t", partitions=[asked])]
    )
    response = await connection.call("list_offsets", version, request)
    answer: ListOffsetsPartitionResponse = response.topics[0].partitions[0]
    return answer


def stamped(*timestamps: int, codec: int = 0) -> bytes:
    return build_batch([(b"k", b"v" * 50, [], NOW_MS + timestamp) for timestamp in timestamps], codec=codec)


@pytest.mark.parametrize("codec", [0, 1, 2, 3, 4])
@pytest.mark.parametrize("version", [1, 3, 7, 9])
def test_w06_a_time_is_the_first_record_at_or_after_it(play: Any, codec: int, version: int) -> None:
    async def case(stage: Any) -> None:
        # Tiny segments: the answer must be right across them too.
        await stage.topic(segment_bytes="400")
        connection = await stage.connect()
        for batch in ((0, 10, 20), (30, 40), (35, 100, 90)):
            assert (await stage.produce(connection, stamped(*batch, codec=codec))).error_code == 0
        expected = {-5: 0, 0: 0, 1: 1, 10: 1, 25: 3, 36: 4, 41: 6, 91: 6, 100: 6}
        for timestamp, offset in expected.items():
            found = await look_up(connection, NOW_MS + timestamp, version=version)
            assert (found.error_code, found.offset) == (0, offset), timestamp
        found = await look_up(connection, NOW_MS + 36, version=version)
        assert found.timestamp == NOW_MS + 40
        assert found.leader_epoch == (0 if version >= 4 else -1)
        none = await look_up(connection, NOW_MS + 101, version=version)
        assert (none.error_code, none.offset, none.timestamp) == (0, -1, -1)

    play(case)


def test_w06_the_ends_and_the_largest_timestamp(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        empty = await look_up(connection, -3)
        assert (empty.error_code, empty.offset, empty.timestamp) == (0, -1, -1)
        for batch in ((0, 10), (50, 20, 50), (30,)):
            await stage.produce(connection, stamped(*batch))
        assert ((await look_up(connection, -1)).offset, (await look_up(connection, -1)).leader_epoch) == (6, 0)
        assert (await look_up(connection, -1, isolation_level=1)).offset == 6
        assert (await look_up(connection, -2)).offset == 0
        largest = await look_up(connection, -3)
        assert (largest.offset, largest.timestamp) == (2, NOW_MS + 50)
        assert (await look_up(connection, -4, version=8)).offset == 0
        assert (await look_up(connection, -5, version=9)).offset == -1

    play(case)


def test_w06_special_timestamps_in_versions_that_do_not_know_them(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        for timestamp, version in ((-3, 6), (-4, 7), (-5, 8), (-6, 10), (-7, 11)):
            assert (await look_up(connection, timestamp, version=version)).error_code == ErrorCode.UNSUPPORTED_VERSION

    play(case)


def test_w06_log_append_time_overrides(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(message_timestamp_type="LogAppendTime")
        connection = await stage.connect()
        before = stage.broker.world.clock.now_ms()
        await stage.produce(connection, stamped(0, 10))
        assert (await look_up(connection, NOW_MS + 1)).offset == 0
        assert (await look_up(connection, NOW_MS + 1)).timestamp >= before

    play(case)


def test_a_partition_asked_for_twice_is_an_invalid_request_answered_once(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        asked = [ListOffsetsPartition(partition_index=0, timestamp=-1)] * 2
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=asked)])
        response = await connection.call("list_offsets", 5, request)
        # One answer for both, as Apache Kafka 4.3 gives.
        assert [answer.error_code for answer in response.topics[0].partitions] == [ErrorCode.INVALID_REQUEST]

    play(case)


def test_r08_list_offsets_is_fenced(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        [partition] = stage.broker.partitions
        partition.leader_epoch = 5
        assert (await look_up(connection, -1, epoch=4)).error_code == ErrorCode.FENCED_LEADER_EPOCH
        assert (await look_up(connection, -1, epoch=6)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert (await look_up(connection, -1, epoch=5)).error_code == 0
        assert (await look_up(connection, -1, partition=9)).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(case)


@pytest.mark.parametrize("version", [0, 2, 4])
def test_the_end_of_a_leader_epoch(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        await stage.produce(connection, stamped(0, 1))
        [partition] = stage.broker.partitions
        partition.leader_epoch = 3
        partition.log.epochs.assign(3, 2)
        await stage.produce(connection, stamped(2))

        async def end_of(epoch: int, current: int = -1) -> EpochEndOffset:
            asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=current, leader_epoch=epoch)
            request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])])
            response = await connection.call("offset_for_leader_epoch", version, request)
            answer: EpochEndOffset = response.topics[0].partitions[0]
            return answer

        assert (await end_of(0)).end_offset == 2
        assert (await end_of(2)).end_offset == 2
        assert (await end_of(3)).end_offset == 3
        assert (await end_of(4)).end_offset == -1
        if version >= 1:
            assert (await end_of(2)).leader_epoch == 0
        if version >= 2:
            assert (await end_of(3, current=2)).error_code == ErrorCode.FENCED_LEADER_EPOCH
            assert (await end_of(3, current=4)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH

    play(case)


def test_l10_delete_records(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        for _ in range(4):
            await stage.produce(connection, stamped(0, 1))

        async def delete(offset: int, partition: int = 0) -> tuple[int, int]:
            asked = [DeleteRecordsPartition(partition_index=partition, offset=offset)]
            request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=asked)], timeout_ms=1000)
            [result] = (await connection.call("delete_records", 1, request)).topics[0].partitions
            return result.error_code, result.low_watermark

        assert await delete(3) == (0, 3)
        assert (await look_up(connection, -2)).offset == 3
        assert await delete(9) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(-2) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(1) == (0, 3), "what is gone stays gone"
        assert await delete(-1) == (0, 8)
        assert await delete(0, partition=5) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        assert (await stage.produce(connection, stamped(0))).log_start_offset == 8

    play(case)


def test_records_of_a_topic_that_is_only_compacted_cannot_be_deleted(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(cleanup_policy="compact")
        connection = await stage.connect()
        asked = [DeleteRecordsPartition(partition_index=0, offset=0)]
        request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=asked)], timeout_ms=1000)
        [result] = (await connection.call("delete_records", 2, request)).topics[0].partitions
        assert result.error_code == ErrorCode.POLICY_VIOLATION

    play(case)


@pytest.mark.parametrize("version", [1, 4, 5])
def test_describe_log_dirs(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        await stage.topic("other")
        connection = await stage.connect()
        await stage.produce(connection, stamped(0), partition=1)
        [result] = (await connection.call("describe_log_dirs", version, DescribeLogDirsRequest(topics=None))).results
        sizes = {(topic.name, part.partition_index): part.partition_size for topic in result.topics for part in topic.partitions}
        assert set(sizes) == {("t", 0), ("t", 1), ("other", 0)}
        assert sizes["t", 0] == 0 < sizes["t", 1]
        if version >= 4:
            assert 0 < result.usable_bytes <= result.total_bytes
        asked = [DescribableLogDirTopic(topic="t", partitions=[1, 7])]
        [result] = (await connection.call("describe_log_dirs", version, DescribeLogDirsRequest(topics=asked))).results
        assert [(topic.name, [part.partition_index for part in topic.partitions]) for topic in result.topics] == [("t", [1])]

    play(case)
