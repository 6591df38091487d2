from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from tests.kit.coordinated import GROUP_SETTINGS, connect_to_groups
from tests.kit.handlers import every_version


@every_version("consumer_group_heartbeat")
def test_a_member_joins_gets_its_partitions_and_leaves(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic(partitions=2)
        connection = await connect_to_groups(stage)

        async def beat(**fields: Any) -> Any:
            request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", **fields)
            return await connection.call("consumer_group_heartbeat", version, request)

        joined = await beat(rebalance_timeout_ms=60_000, subscribed_topic_names=["t"], topic_partitions=[])
        assert (joined.error_code, joined.member_id) == (0, "m")
        assert joined.member_epoch > 0
        [assigned] = joined.assignment.topic_partitions
        assert (assigned.topic_id, assigned.partitions) == (stage.broker.image.topics["t"].topic_id, [0, 1])
        assert (await beat(member_epoch=joined.member_epoch + 5)).error_code == ErrorCode.FENCED_MEMBER_EPOCH
        assert (await beat(member_epoch=-1)).member_epoch == -1
        assert (await beat(member_epoch=joined.member_epoch)).error_code == ErrorCode.UNKNOWN_MEMBER_ID

    play(case, **GROUP_SETTINGS)
