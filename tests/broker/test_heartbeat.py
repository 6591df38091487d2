from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from tests.kit.coordinated import GROUP_SETTINGS, connect_to_groups, stable_member
from tests.kit.handlers import every_version


@every_version("heartbeat")
def test_a_member_of_the_current_generation_only(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        connection = await connect_to_groups(stage)
        member_id = await stable_member(connection)

        async def beat(generation: int = 1, member: str = member_id, group: str = "g") -> int:
            request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
            code: int = (await connection.call("heartbeat", version, request)).error_code
            return code

        assert await beat() == 0
        assert await beat(generation=2) == ErrorCode.ILLEGAL_GENERATION
        assert await beat(member="stranger") == ErrorCode.UNKNOWN_MEMBER_ID
        assert await beat(group="") == ErrorCode.INVALID_GROUP_ID

    play(case, **GROUP_SETTINGS)
