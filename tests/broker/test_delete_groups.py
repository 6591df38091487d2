from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from ottla.protocol.messages.delete_groups import DeleteGroupsRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from tests.kit.coordinated import GROUP_SETTINGS, commit_offset, connect_to_groups, stable_member
from tests.kit.handlers import every_version


@every_version("delete_groups")
def test_only_groups_without_members_are_deleted(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await connect_to_groups(stage)
        await stable_member(connection)
        await commit_offset(connection, 3, group="empty")
        request = DeleteGroupsRequest(groups_names=["g", "empty", "none"])
        response = await connection.call("delete_groups", version, request)
        assert {result.group_id: result.error_code for result in response.results} == {
            "g": ErrorCode.NON_EMPTY_GROUP,
            "empty": 0,
            "none": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        listed = await connection.call("list_groups", 4, ListGroupsRequest())
        assert [group.group_id for group in listed.groups] == ["g"]

    play(case, **GROUP_SETTINGS)
