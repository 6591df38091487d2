"""DeleteGroups: remove groups that have no members, with their offsets.

Versions
    2       flexible
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message(versions="0-2", flexible="2+")
class DeleteGroupsRequest:
    groups_names: list[str] = wire("[]string")


@message()
class DeletableGroupResult:
    group_id: str = wire("string")
    error_code: int = wire("int16")


@message(versions="0-2", flexible="2+")
class DeleteGroupsResponse:
    throttle_time_ms: int = wire("int32")
    results: list[DeletableGroupResult] = wire(list_of(DeletableGroupResult))
