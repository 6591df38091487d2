"""JoinGroup: a member enters the next generation of a classic group.

The reply comes when the generation is complete. One member is made leader and gets the subscriptions of all; it computes the
assignment and hands it in with SyncGroup.

Versions
    1       rebalance timeout, apart from the session timeout (which stands for both in version 0)
    2       throttle time
    4       a new member is first given an id and joins again with it (KIP-394)
    5       static members (KIP-345)
    6       flexible
    7       the response names the protocol type (KIP-559)
    8       why the member joins (KIP-800)
    9       the leader may be told to leave the assignment as it is (KIP-814)
"""

from __future__ import annotations

from ottla.types import Buffer
from ottla.wire.schema import list_of, message, wire


@message()
class JoinGroupRequestProtocol:
    name: str = wire("string")
    metadata: Buffer = wire("bytes")


@message(versions="0-9", flexible="6+")
class JoinGroupRequest:
    group_id: str = wire("string")
    session_timeout_ms: int = wire("int32")
    rebalance_timeout_ms: int = wire("int32", "1+", default=-1, ignorable=True)
    member_id: str = wire("string")
    group_instance_id: str | None = wire("string", "5+", nullable="5+", default=None)
    protocol_type: str = wire("string")
    protocols: list[JoinGroupRequestProtocol] = wire(list_of(JoinGroupRequestProtocol))
    reason: str | None = wire("string", "8+", nullable="8+", default=None, ignorable=True)


@message()
class JoinGroupResponseMember:
    member_id: str = wire("string")
    group_instance_id: str | None = wire("string", "5+", nullable="5+", default=None, ignorable=True)
    metadata: Buffer = wire("bytes")


@message(versions="0-9", flexible="6+")
class JoinGroupResponse:
    throttle_time_ms: int = wire("int32", "2+", ignorable=True)
    error_code: int = wire("int16")
    generation_id: int = wire("int32", default=-1)
    protocol_type: str | None = wire("string", "7+", nullable="7+", default=None, ignorable=True)
    protocol_name: str | None = wire("string", nullable="7+")
    leader: str = wire("string")
    skip_assignment: bool = wire("bool", "9+")
    member_id: str = wire("string")
    members: list[JoinGroupResponseMember] = wire(list_of(JoinGroupResponseMember))
