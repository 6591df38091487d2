"""CreateAcls: add access rules.

Versions
    1       pattern type of the resource: literal, prefixed (KIP-290)
    2       flexible
    3       users as resources (KIP-373)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class AclCreation:
    resource_type: int = wire("int8")
    resource_name: str = wire("string")
    resource_pattern_type: int = wire("int8", "1+", default=3)
    principal: str = wire("string")
    host: str = wire("string")
    operation: int = wire("int8")
    permission_type: int = wire("int8")


@message(versions="0-3", flexible="2+")
class CreateAclsRequest:
    creations: list[AclCreation] = wire(list_of(AclCreation))


@message()
class AclCreationResult:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)


@message(versions="0-3", flexible="2+")
class CreateAclsResponse:
    throttle_time_ms: int = wire("int32")
    results: list[AclCreationResult] = wire(list_of(AclCreationResult))
