"""ListConfigResources: names of resources that have settings.

Versions
    0       client metrics subscriptions only, under the name ListClientMetricsResources (KIP-714); flexible from the start
    1       any types of resources; none named means all (KIP-1142)
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message(versions="0-1", flexible="0+")
class ListConfigResourcesRequest:
    resource_types: list[int] = wire("[]int8", "1+")


@message()
class ConfigResource:
    resource_name: str = wire("string")
    resource_type: int = wire("int8", "1+", default=16, ignorable=True)


@message(versions="0-1", flexible="0+")
class ListConfigResourcesResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    config_resources: list[ConfigResource] = wire(list_of(ConfigResource))
