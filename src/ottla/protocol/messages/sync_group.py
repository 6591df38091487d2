"""SyncGroup: the leader of a classic group hands in the assignment, every member gets its part of it.

Versions
    1       throttle time
    3       static members
    4       flexible
    5       protocol type and name, to be compared with what the group agreed on (KIP-559)
"""

from __future__ import annotations

from ottla.types import Buffer
from ottla.wire.schema import list_of, message, wire


@message()
class SyncGroupRequestAssignment:
    member_id: str = wire("string")
    assignment: Buffer = wire("bytes")


@message(versions="0-5", flexible="4+")
class SyncGroupRequest:
    group_id: str = wire("string")
    generation_id: int = wire("int32")
    member_id: str = wire("string")
    group_instance_id: str | None = wire("string", "3+", nullable="3+", default=None)
    protocol_type: str | None = wire("string", "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = wire("string", "5+", nullable="5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = wire(list_of(SyncGroupRequestAssignment))


@message(versions="0-5", flexible="4+")
class SyncGroupResponse:
    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    error_code: int = wire("int16")
    protocol_type: str | None = wire("string", "5+", nullable="5+", default=None, ignorable=True)
    protocol_name: str | None = wire("string", "5+", nullable="5+", default=None, ignorable=True)
    assignment: Buffer = wire("bytes")
