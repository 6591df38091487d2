"""PushTelemetry: the metrics of a client, in OpenTelemetry's encoding (KIP-714)."""

from __future__ import annotations

from ottla.types import Buffer
from ottla.wire.schema import message, wire


@message(versions="0", flexible="0+")
class PushTelemetryRequest:
    client_instance_id: bytes = wire("uuid")
    subscription_id: int = wire("int32")
    terminating: bool = wire("bool")
    compression_type: int = wire("int8")
    metrics: Buffer = wire("bytes")


@message(versions="0", flexible="0+")
class PushTelemetryResponse:
    throttle_time_ms: int = wire("int32")
    error_code: int = wire("int16")
