from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteRequestPartition, OffsetDeleteRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from tests.kit.coordinated import GROUP_SETTINGS, commit_offset, connect_to_groups


def test_offsets_are_deleted_and_unknown_partitions_refused_one_by_one(play: Any) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await connect_to_groups(stage)
        await commit_offset(connection, 42)
        partitions = [OffsetDeleteRequestPartition(partition_index=number) for number in (0, 9)]
        request = OffsetDeleteRequest(group_id="g", topics=[OffsetDeleteRequestTopic(name="t", partitions=partitions)])
        response = await connection.call("offset_delete", 0, request)
        assert response.error_code == 0
        assert {each.partition_index: each.error_code for each in response.topics[0].partitions} == {
            0: 0,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        left = await connection.call("offset_fetch", 8, OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g")]))
        assert left.groups[0].topics == []
        request.group_id = "none"
        assert (await connection.call("offset_delete", 0, request)).error_code == ErrorCode.GROUP_ID_NOT_FOUND

    play(case, **GROUP_SETTINGS)
