"""DeleteAcls: remove the access rules that match filters, and tell which they were.

Versions
    1       pattern type of the resource: literal, prefixed (KIP-290)
    2       flexible
    3       users as resources (KIP-373)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class DeleteAclsFilter:
    resource_type_filter: int = wire("int8")
    resource_name_filter: str | None = wire("string", nullable="0+")
    pattern_type_filter: int = wire("int8", "1+", default=3)
    principal_filter: str | None = wire("string", nullable="0+")
    host_filter: str | None = wire("string", nullable="0+")
    operation: int = wire("int8")
    permission_type: int = wire("int8")


@message(versions="0-3", flexible="2+")
class DeleteAclsRequest:
    filters: list[DeleteAclsFilter] = wire(list_of(DeleteAclsFilter))


@message()
class DeleteAclsMatchingAcl:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    resource_type: int = wire("int8")
    resource_name: str = wire("string")
    pattern_type: int = wire("int8", "1+", default=3)
    principal: str = wire("string")
    host: str = wire("string")
    operation: int = wire("int8")
    permission_type: int = wire("int8")


@message()
class DeleteAclsFilterResult:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    matching_acls: list[DeleteAclsMatchingAcl] = wire(list_of(DeleteAclsMatchingAcl))


@message(versions="0-3", flexible="2+")
class DeleteAclsResponse:
    throttle_time_ms: int = wire("int32")
    filter_results: list[DeleteAclsFilterResult] = wire(list_of(DeleteAclsFilterResult))
