from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.kit.handlers import every_version


@every_version("offset_for_leader_epoch")
def test_the_end_of_an_epoch_and_unknown_ones(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        await stage.produce(connection, stage.batch(b"a", b"b"))

        async def end_of(leader_epoch: int, partition: int = 0, current: int = -1) -> tuple[int, int]:
            asked = OffsetForLeaderPartition(partition=partition, leader_epoch=leader_epoch)
            if version >= 2:
                asked.current_leader_epoch = current
            request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=[asked])])
            [found] = (await connection.call("offset_for_leader_epoch", version, request)).topics[0].partitions
            return found.error_code, found.end_offset

        assert await end_of(0) == (0, 2)
        assert await end_of(5) == (0, -1)
        assert await end_of(0, partition=9) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1)
        if version >= 2:
            assert await end_of(0, current=7) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1)

    play(case)
