from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from tests.kit.coordinated import GROUP_SETTINGS, connect_to_groups, stable_member
from tests.kit.handlers import every_version


@every_version("leave_group")
def test_a_member_leaves_once(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        connection = await connect_to_groups(stage)
        member_id = await stable_member(connection)
        request = LeaveGroupRequest(group_id="g")
        if version >= 3:
            request.members = [MemberIdentity(member_id=member_id)]
        else:
            request.member_id = member_id

        async def leave() -> int:
            response = await connection.call("leave_group", version, request)
            code: int = response.members[0].error_code if version >= 3 else response.error_code
            return code

        assert await leave() == 0
        assert await leave() == ErrorCode.UNKNOWN_MEMBER_ID

    play(case, **GROUP_SETTINGS)
