"""ApiVersions: which APIs in which versions this broker serves.

The first request on most connections. One of a version the broker does not know is answered in version 0, with
UNSUPPORTED_VERSION and the range; the header of the response is version 0 in all versions, so that this can be read (KIP-511).

Versions
    1       throttle time
    3       flexible; name and version of the client's software; features, supported and finalized (KIP-584)
    4       a feature's lowest version may be 0
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message(versions="0-4", flexible="3+")
class ApiVersionsRequest:
    client_software_name: str = wire("string", "3+", ignorable=True)
    client_software_version: str = wire("string", "3+", ignorable=True)


@message()
class ApiVersion:
    api_key: int = wire("int16")
    min_version: int = wire("int16")
    max_version: int = wire("int16")


@message()
class SupportedFeatureKey:
    name: str = wire("string", "3+")
    min_version: int = wire("int16", "3+")
    max_version: int = wire("int16", "3+")


@message()
class FinalizedFeatureKey:
    name: str = wire("string", "3+")
    max_version_level: int = wire("int16", "3+")
    min_version_level: int = wire("int16", "3+")


@message(versions="0-4", flexible="3+")
class ApiVersionsResponse:
    error_code: int = wire("int16")
    api_keys: list[ApiVersion] = wire(list_of(ApiVersion))
    throttle_time_ms: int = wire("int32", "1+", ignorable=True)
    supported_features: list[SupportedFeatureKey] = wire(list_of(SupportedFeatureKey), "3+", tag=0, ignorable=True)
    finalized_features_epoch: int = wire("int64", "3+", tag=1, default=-1, ignorable=True)
    finalized_features: list[FinalizedFeatureKey] = wire(list_of(FinalizedFeatureKey), "3+", tag=2, ignorable=True)
    zk_migration_ready: bool = wire("bool", "3+", tag=3, ignorable=True)
