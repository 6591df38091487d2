"""LeaveGroup: members of a classic group go.

Versions
    1       throttle time
    3       several members in one request, static ones by instance id (KIP-345); `member_id` at the top is gone
    4       flexible
    5       why a member leaves (KIP-800)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class MemberIdentity:
    member_id: str = wire("string", "3+")
    group_instance_id: str | None = wire("string", "3+", nullable="3+", default=None)
    reason: str | None = wire("string", "5+", nullable="5+", default=None, ignorable=True)


@message(versions="0-5", flexible="4+")
class LeaveGroupRequest:
    group_id: str = wire("string")
    member_id: str = wire("string", "0-2")
    members: list[MemberIdentity] = wire(list_of(MemberIdentity), "3+")


@message()
class MemberResponse:
    member_id: str = wire("string", "3+")
    group_instance_id: str | None = wire("string", "3+", nullable="3+")
    error_code: int = wire("int16", "3+")


@message(versions="0-5", flexible="4+")
class LeaveGroupResponse:
    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    error_code: int = wire("int16")
    members: list[MemberResponse] = wire(list_of(MemberResponse), "3+")
