from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from tests.kit.coordinated import GROUP_SETTINGS, connect_to_groups, stable_member
from tests.kit.handlers import every_version


@every_version("offset_commit")
def test_a_member_commits_and_unknown_partitions_are_refused_one_by_one(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await connect_to_groups(stage)
        member_id = await stable_member(connection)

        async def commit(generation: int) -> dict[int, int]:
            partitions = [OffsetCommitRequestPartition(partition_index=number, committed_offset=42) for number in (0, 9)]
            topic = OffsetCommitRequestTopic(partitions=partitions)
            if version >= 10:
                topic.topic_id = stage.broker.image.topics["t"].topic_id
            else:
                topic.name = "t"
            request = OffsetCommitRequest(
                group_id="g", generation_id_or_member_epoch=generation, member_id=member_id, topics=[topic]
            )
            response = await connection.call("offset_commit", version, request)
            return {each.partition_index: each.error_code for each in response.topics[0].partitions}

        async def committed() -> int:
            topic = OffsetFetchRequestTopics(name="t", partition_indexes=[0])
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])
            offset: int = (await connection.call("offset_fetch", 8, request)).groups[0].topics[0].partitions[0].committed_offset
            return offset

        assert (await commit(generation=7))[0] == ErrorCode.ILLEGAL_GENERATION
        assert await committed() == -1
        assert await commit(generation=1) == {0: 0, 9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}
        assert await committed() == 42

    play(case, **GROUP_SETTINGS)
