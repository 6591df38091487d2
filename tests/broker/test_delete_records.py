from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from ottla.types import TopicPartition
from tests.kit.handlers import every_version


@every_version("delete_records")
def test_the_log_start_offset_advances(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        await stage.produce(connection, stage.batch(b"a", b"b", b"c"))

        async def delete(offset: int, partition: int = 0) -> tuple[int, int]:
            asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
            request = DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="t", partitions=[asked])], timeout_ms=1000)
            [found] = (await connection.call("delete_records", version, request)).topics[0].partitions
            return found.error_code, found.low_watermark

        assert await delete(2) == (0, 2)
        assert stage.broker.partitions.get(TopicPartition("t", 0)).log.log_start_offset == 2
        assert await delete(9) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
        assert await delete(-1) == (0, 3), "the high watermark"
        assert await delete(1, partition=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)

    play(case)
