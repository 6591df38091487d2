from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from tests.kit.coordinated import GROUP_SETTINGS, commit_offset, connect_to_groups
from tests.kit.handlers import every_version


@every_version("offset_fetch")
def test_committed_offsets_and_minus_one_without_a_commit(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        topic_id = stage.broker.image.topics["t"].topic_id
        connection = await connect_to_groups(stage)
        await commit_offset(connection, 42)
        if version >= 8:
            topic = OffsetFetchRequestTopics(partition_indexes=[0, 1])
            if version >= 10:
                topic.topic_id = topic_id
            else:
                topic.name = "t"
            request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])
        else:
            request = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])])
        response = await connection.call("offset_fetch", version, request)
        [found] = response.groups[0].topics if version >= 8 else response.topics
        assert [(each.committed_offset, each.metadata, each.error_code) for each in found.partitions] == [
            (42, "note", 0),
            (-1, "", 0),
        ]

    play(case, **GROUP_SETTINGS)


def test_an_unknown_topic_id_has_an_error_of_its_own(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await connect_to_groups(stage)
        topic = OffsetFetchRequestTopics(topic_id=b"?" * 16, partition_indexes=[0])
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=[topic])])
        response = await connection.call("offset_fetch", 10, request)
        assert response.groups[0].error_code == 0
        assert response.groups[0].topics[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID

    play(case, **GROUP_SETTINGS)
