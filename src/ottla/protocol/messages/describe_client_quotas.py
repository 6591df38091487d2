"""DescribeClientQuotas: quotas of users, client ids and addresses that match a filter (KIP-546).

A component matches a name exactly (0), the default entity (1), or any name (2).

Versions
    1       flexible
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class ComponentData:
    entity_type: str = wire("string")
    match_type: int = wire("int8")
    match: str | None = wire("string", nullable="0+")


@message(versions="0-1", flexible="1+")
class DescribeClientQuotasRequest:
    components: list[ComponentData] = wire(list_of(ComponentData))
    strict: bool = wire("bool")


@message()
class EntityData:
    entity_type: str = wire("string")
    entity_name: str | None = wire("string", nullable="0+")


@message()
class ValueData:
    key: str = wire("string")
    value: float = wire("float64")


@message()
class EntryData:
    entity: list[EntityData] = wire(list_of(EntityData))
    values: list[ValueData] = wire(list_of(ValueData))


@message(versions="0-1", flexible="1+")
class DescribeClientQuotasResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    entries: list[EntryData] | None = wire(list_of(EntryData), nullable="0+")
