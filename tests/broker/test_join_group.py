from __future__ import annotations

from typing import Any

from ottla.errors import ErrorCode
from tests.kit.coordinated import GROUP_SETTINGS, connect_to_groups, join_request
from tests.kit.handlers import every_version


@every_version("join_group")
def test_a_new_member_leads_the_first_generation(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        connection = await connect_to_groups(stage)
        joined = await connection.call("join_group", version, join_request())
        if version >= 4:  # KIP-394: the member comes again with its id
            assert (joined.error_code, bool(joined.member_id)) == (ErrorCode.MEMBER_ID_REQUIRED, True)
            joined = await connection.call("join_group", version, join_request(member_id=joined.member_id))
        assert (joined.error_code, joined.generation_id, joined.protocol_name) == (0, 1, "range")
        assert joined.leader == joined.member_id
        assert [member.member_id for member in joined.members] == [joined.member_id]

    play(case, **GROUP_SETTINGS)


@every_version("join_group")
def test_an_unknown_member_is_refused_with_the_versions_empty_protocol(play: Any, version: int) -> None:
    async def case(stage: Any) -> None:
        connection = await connect_to_groups(stage)
        refused = await connection.call("join_group", version, join_request(member_id="stranger"))
        assert (refused.error_code, refused.member_id) == (ErrorCode.UNKNOWN_MEMBER_ID, "stranger")
        assert refused.protocol_name == (None if version >= 7 else "")

    play(case, **GROUP_SETTINGS)
