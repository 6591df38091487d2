"""UpdateFeatures: finalize versions of features for the whole cluster (KIP-584).

Versions
    0       flexible from the start; `allow_downgrade`
    1       kind of upgrade instead: 1 upgrade, 2 safe downgrade, 3 unsafe downgrade; `validate_only`
    2       one error for all; no results for single features
"""

from __future__ import annotations

from ottla.wire.schema import list_of, message, wire


@message()
class FeatureUpdateKey:
    feature: str = wire("string")
    max_version_level: int = wire("int16")
    allow_downgrade: bool = wire("bool", "0")
    upgrade_type: int = wire("int8", "1+", default=1)


@message(versions="0-2", flexible="0+")
class UpdateFeaturesRequest:
    timeout_ms: int = wire("int32", default=60_000)
    feature_updates: list[FeatureUpdateKey] = wire(list_of(FeatureUpdateKey))
    validate_only: bool = wire("bool", "1+")


@message()
class UpdatableFeatureResult:
    feature: str = wire("string")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)


@message(versions="0-2", flexible="0+")
class UpdateFeaturesResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    results: list[UpdatableFeatureResult] = wire(list_of(UpdatableFeatureResult), "0-1", ignorable=True)
