"""GetTelemetrySubscriptions: which metrics a client is to push, and how often (KIP-714)."""

from __future__ import annotations

from ottla.wire.schema import message, wire


@message(versions="0", flexible="0+")
class GetTelemetrySubscriptionsRequest:
    client_instance_id: bytes = wire("uuid")


@message(versions="0", flexible="0+")
class GetTelemetrySubscriptionsResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
    client_instance_id: bytes = wire("uuid")
    subscription_id: int = wire("int32")
    accepted_compression_types: list[int] = wire("[]int8")
    push_interval_ms: int = wire("int32")
    telemetry_max_bytes: int = wire("int32")
    delta_temporality: bool = wire("bool")
    requested_metrics: list[str] = wire("[]string")
