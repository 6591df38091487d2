"""AlterClientQuotas: set or remove quotas of users, client ids and addresses (KIP-546).

A name of None is the default entity of its type.

Versions
    1       flexible
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class EntityData:
    entity_type: str = wire("string")
    entity_name: str | None = wire("string", nullable="0+")


@message()
class OpData:
    key: str = wire("string")
    value: float = wire("float64")
    remove: bool = wire("bool")


@message()
class EntryData:
    entity: list[EntityData] = wire(list_of(EntityData))
    ops: list[OpData] = wire(list_of(OpData))


@message(versions="0-1", flexible="1+")
class AlterClientQuotasRequest:
    entries: list[EntryData] = wire(list_of(EntryData))
    validate_only: bool = wire("bool")


@message()
class EntityResponseData:
    entity_type: str = wire("string")
    entity_name: str | None = wire("string", nullable="0+")


@message()
class EntryResponseData:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    entity: list[EntityResponseData] = wire(list_of(EntityResponseData))


@message(versions="0-1", flexible="1+")
class AlterClientQuotasResponse:
    throttle_time_ms: int = wire("int32")
    entries: list[EntryResponseData] = wire(list_of(EntryResponseData))
