"""DescribeConfigs: settings of topics, brokers and groups, with where each value comes from.

Versions
    0       whether a value is the default
    1       its source instead, and on request the synonyms it was chosen from (KIP-226)
    3       type of the setting, and on request its documentation (KIP-569)
    4       flexible
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class DescribeConfigsResource:
    resource_type: int = wire("int8")
    resource_name: str = wire("string")
    configuration_keys: list[str] | None = wire("[]string", nullable="0+")


@message(versions="0-4", flexible="4+")
class DescribeConfigsRequest:
    resources: list[DescribeConfigsResource] = wire(list_of(DescribeConfigsResource))
    include_synonyms: bool = wire("bool", "1+")
    include_documentation: bool = wire("bool", "3+")


@message()
class DescribeConfigsSynonym:
    name: str = wire("string", "1+")
    value: str | None = wire("string", "1+", nullable="1+")
    source: int = wire("int8", "1+")


@message()
class DescribeConfigsResourceResult:
    name: str = wire("string")
    value: str | None = wire("string", nullable="0+")
    read_only: bool = wire("bool")
    is_default: bool = wire("bool", "0")
    config_source: int = wire("int8", "1+", default=-1, ignorable=True)
    is_sensitive: bool = wire("bool")
    synonyms: list[DescribeConfigsSynonym] = wire(list_of(DescribeConfigsSynonym), "1+", ignorable=True)
    config_type: int = wire("int8", "3+", ignorable=True)
    documentation: str | None = wire("string", "3+", nullable="3+", ignorable=True)


@message()
class DescribeConfigsResult:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    resource_type: int = wire("int8")
    resource_name: str = wire("string")
    configs: list[DescribeConfigsResourceResult] = wire(list_of(DescribeConfigsResourceResult))


@message(versions="0-4", flexible="4+")
class DescribeConfigsResponse:
    throttle_time_ms: int = wire("int32")
    results: list[DescribeConfigsResult] = wire(list_of(DescribeConfigsResult))
