"""DescribeGroups: state, protocol, members and assignments of classic groups.

Versions
    1       throttle time
    3       authorized operations (KIP-430)
    4       instance ids of static members
    5       flexible
    6       an unknown group is GROUP_ID_NOT_FOUND with a message; before, it is described as Dead (KIP-1043)
"""

from __future__ import annotations

from ottla.types import Buffer
from ottla.wire.schema import list_of, message, wire


@message(versions="0-6", flexible="5+")
class DescribeGroupsRequest:
    groups: list[str] = wire("[]string")
    include_authorized_operations: bool = wire("bool", "3+")


@message()
class DescribedGroupMember:
    member_id: str = wire("string")
    group_instance_id: str | None = wire("string", "4+", nullable="4+", default=None, ignorable=True)
    client_id: str = wire("string")
    client_host: str = wire("string")
    member_metadata: Buffer = wire("bytes")
    member_assignment: Buffer = wire("bytes")


@message()
class DescribedGroup:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", "6+", nullable="6+", default=None)
    group_id: str = wire("string")
    group_state: str = wire("string")
    protocol_type: str = wire("string")
    protocol_data: str = wire("string")
    members: list[DescribedGroupMember] = wire(list_of(DescribedGroupMember))
    authorized_operations: int = wire("int32", "3+", default=-2147483648)


@message(versions="0-6", flexible="5+")
class DescribeGroupsResponse:
    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    groups: list[DescribedGroup] = wire(list_of(DescribedGroup))
