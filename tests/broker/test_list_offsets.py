from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from tests.kit.handlers import every_version

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


@every_version("list_offsets")
def test_ends_of_the_log_and_the_first_record_at_a_time(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await stage.connect()
        first_ms = stage.broker.world.clock.now_ms() - 1000
        for number in range(3):
            await stage.produce(connection, stage.batch(b"x", timestamp=first_ms + number))

        async def offset(timestamp: int, partition: int = 0) -> tuple[int, int]:
            asked = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[asked])])
            [found] = (await connection.call("list_offsets", version, request)).topics[0].partitions
            return found.error_code, found.offset

        assert await offset(LATEST) == (0, 3)
        assert await offset(EARLIEST) == (0, 0)
        assert await offset(first_ms + 1) == (0, 1)
        assert await offset(first_ms + 9) == (0, -1), "no such record"
        assert (await offset(LATEST, partition=9))[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await offset(MAX_TIMESTAMP) == ((0, 2) if version >= 7 else (ErrorCode.UNSUPPORTED_VERSION, -1))

    play(case)
