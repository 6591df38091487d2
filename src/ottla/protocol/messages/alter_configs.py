"""AlterConfigs: replace all settings of a resource by those given; what is not given falls back to its default.

Versions
    2       flexible
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class AlterableConfig:
    name: str = wire("string")
    value: str | None = wire("string", nullable="0+")


@message()
class AlterConfigsResource:
    resource_type: int = wire("int8")
    resource_name: str = wire("string")
    configs: list[AlterableConfig] = wire(list_of(AlterableConfig))


@message(versions="0-2", flexible="2+")
class AlterConfigsRequest:
    resources: list[AlterConfigsResource] = wire(list_of(AlterConfigsResource))
    validate_only: bool = wire("bool")


@message()
class AlterConfigsResourceResponse:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    resource_type: int = wire("int8")
    resource_name: str = wire("string")


@message(versions="0-2", flexible="2+")
class AlterConfigsResponse:
    throttle_time_ms: int = wire("int32")
    responses: list[AlterConfigsResourceResponse] = wire(list_of(AlterConfigsResourceResponse))
