from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from tests.kit.coordinated import GROUP_SETTINGS, connect_to_groups, join_request, sync_request
from tests.kit.handlers import every_version


@every_version("sync_group")
def test_the_leader_gets_its_part_of_the_assignment(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        connection = await connect_to_groups(stage)
        member_id = (await connection.call("join_group", 3, join_request())).member_id
        synced = await connection.call("sync_group", version, sync_request(member_id, assignment=b"mine"))
        assert (synced.error_code, bytes(synced.assignment)) == (0, b"mine")
        stale = await connection.call("sync_group", version, sync_request(member_id, generation=9, assignment=b"mine"))
        assert stale.error_code == ErrorCode.ILLEGAL_GENERATION

    play(case, **GROUP_SETTINGS)


def test_version_5_must_name_the_protocol(play: Any) -> None:
    async def case(stage: Any) -> None:
        connection = await connect_to_groups(stage)
        request = sync_request("m")
        request.protocol_name = None
        assert (await connection.call("sync_group", 5, request)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    play(case, **GROUP_SETTINGS)
