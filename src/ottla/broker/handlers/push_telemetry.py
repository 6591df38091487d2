"""PushTelemetry: takes the metrics of a client (KIP-714). Errors are checked in Kafka's order.

The bytes are read by a worker: a megabyte of metrics would hold up the event loop.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.network.context import RequestContext
from ottla.broker.telemetry.instances import Instance
from ottla.broker.telemetry.telemetry import Telemetry
from ottla.cluster.znodes import RESERVED_UUIDS
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from ottla.records.compression import CODEC_NAMES


def handle(
    telemetry: Telemetry, request: PushTelemetryRequest, context: RequestContext
) -> PushTelemetryResponse | Awaitable[PushTelemetryResponse]:
    instance_id = bytes(request.client_instance_id)
    if instance_id in RESERVED_UUIDS:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the client instance id is missing; GetTelemetrySubscriptions gives one")
    instance = telemetry.pushes(instance_id, context, request.subscription_id, terminating=request.terminating)
    if not 0 <= request.compression_type < len(CODEC_NAMES):
        raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type {request.compression_type}")
    if len(request.metrics) > telemetry.bytes_max:
        text = f"{len(request.metrics)} bytes of metrics, telemetry.max.bytes is {telemetry.bytes_max}"
        raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, text)
    if not request.metrics:
        return PushTelemetryResponse()
    return _take(telemetry, instance, request.compression_type, bytes(request.metrics))


async def _take(telemetry: Telemetry, instance: Instance, codec: int, data: bytes) -> PushTelemetryResponse:
    await telemetry.take(instance, codec, data)
    return PushTelemetryResponse()
