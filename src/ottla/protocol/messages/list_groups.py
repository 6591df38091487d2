"""ListGroups: the groups a broker coordinates.

Versions
    1       throttle time
    3       flexible
    4       state of each group, and a filter by states (KIP-518)
    5       type of each group, and a filter by types (KIP-848)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message(versions="0-5", flexible="3+")
class ListGroupsRequest:
    states_filter: list[str] = wire("[]string", "4+")
    types_filter: list[str] = wire("[]string", "5+")


@message()
class ListedGroup:
    group_id: str = wire("string")
    protocol_type: str = wire("string")
    group_state: str = wire("string", "4+", ignorable=True)
    group_type: str = wire("string", "5+", ignorable=True)


@message(versions="0-5", flexible="3+")
class ListGroupsResponse:
    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    error_code: int = wire("int16")
    groups: list[ListedGroup] = wire(list_of(ListedGroup))
