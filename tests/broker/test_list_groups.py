from __future__ import annotations

from typing import Any

from ottla.protocol.messages.list_groups import ListGroupsRequest
from tests.kit.coordinated import GROUP_SETTINGS, commit_offset, connect_to_groups, stable_member
from tests.kit.handlers import every_version


@every_version("list_groups")
def test_groups_and_the_filter_by_state(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        await stage.topic()
        connection = await connect_to_groups(stage)
        await stable_member(connection)
        await commit_offset(connection, 3, group="empty")

        async def listed(*states: str) -> set[str]:
            response = await connection.call("list_groups", version, ListGroupsRequest(states_filter=list(states)))
            assert response.error_code == 0
            return {group.group_id for group in response.groups}

        assert await listed() == {"g", "empty"}
        if version >= 4:
            assert await listed("Stable") == {"g"}
            assert await listed("Empty") == {"empty"}

    play(case, **GROUP_SETTINGS)
