from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from tests.kit.coordinated import GROUP_SETTINGS, connect_to_groups, stable_member
from tests.kit.handlers import every_version


@every_version("describe_groups")
def test_members_and_assignments_and_an_unknown_group(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        connection = await connect_to_groups(stage)
        member_id = await stable_member(connection)
        response = await connection.call("describe_groups", version, DescribeGroupsRequest(groups=["g", "none"]))
        group, unknown = response.groups
        assert (group.error_code, group.group_state, group.protocol_data) == (0, "Stable", "range")
        [member] = group.members
        assert (member.member_id, member.client_host, bytes(member.member_assignment)) == (member_id, "/127.0.0.1", b"all")
        assert unknown.group_state == "Dead"
        assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else 0)

    play(case, **GROUP_SETTINGS)
