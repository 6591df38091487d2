from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.kit.coordinated import GROUP_SETTINGS, connect_to_groups
from tests.kit.handlers import every_version


@every_version("consumer_group_describe")
def test_members_with_their_assignments_and_groups_that_are_not_there(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        connection = await connect_to_groups(stage)
        joining = ConsumerGroupHeartbeatRequest(
            group_id="g", member_id="m", rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[]
        )
        joined = await connection.call("consumer_group_heartbeat", 1, joining)
        assert joined.error_code == 0
        request = ConsumerGroupDescribeRequest(group_ids=["g", "none", ""])
        group, unknown, nameless = (await connection.call("consumer_group_describe", version, request)).groups
        assert (group.error_code, group.group_epoch) == (0, joined.member_epoch)
        [member] = group.members
        assert (member.member_id, member.subscribed_topic_names) == ("m", ["t"])
        [target] = member.target_assignment.topic_partitions
        assert (target.topic_name, target.partitions) == ("t", [0, 1])
        assert unknown.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert nameless.error_code == ErrorCode.INVALID_GROUP_ID

    play(case, **GROUP_SETTINGS)
