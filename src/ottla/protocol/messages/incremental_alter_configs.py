"""IncrementalAlterConfigs: change single settings of a resource and leave the others (KIP-339).

Operations: 0 set, 1 delete, 2 append to a list, 3 take from a list.

Versions
    1       flexible
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class AlterableConfig:
    name: str = wire("string")
    config_operation: int = wire("int8")
    value: str | None = wire("string", nullable="0+")


@message()
class AlterConfigsResource:
    resource_type: int = wire("int8")
    resource_name: str = wire("string")
    configs: list[AlterableConfig] = wire(list_of(AlterableConfig))


@message(versions="0-1", flexible="1+")
class IncrementalAlterConfigsRequest:
    resources: list[AlterConfigsResource] = wire(list_of(AlterConfigsResource))
    validate_only: bool = wire("bool")


@message()
class AlterConfigsResourceResponse:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    resource_type: int = wire("int8")
    resource_name: str = wire("string")


@message(versions="0-1", flexible="1+")
class IncrementalAlterConfigsResponse:
    throttle_time_ms: int = wire("int32")
    responses: list[AlterConfigsResourceResponse] = wire(list_of(AlterConfigsResourceResponse))
