"""GetTelemetrySubscriptions: the metrics that a client is to push, the interval, and the id to push by (KIP-714).

A client without an instance id gets one. Without a matching subscription the list of metrics is empty, and clients push nothing.
"""

from __future__ import annotations

from ottla.broker.network.context import RequestContext
from ottla.broker.telemetry.telemetry import Telemetry
from ottla.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from ottla.records.compression import GZIP, LZ4, SNAPPY, ZSTD
from ottla.types import ZERO_UUID

_ACCEPTED = (ZSTD, LZ4, GZIP, SNAPPY)
"""In Kafka's order: clients take the first that they support."""


def handle(
    telemetry: Telemetry, request: GetTelemetrySubscriptionsRequest, context: RequestContext
) -> GetTelemetrySubscriptionsResponse:
    instance_id = bytes(request.client_instance_id)
    if instance_id == ZERO_UUID:
        instance_id = telemetry.new_instance_id()
    instance = telemetry.asks(instance_id, context)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(_ACCEPTED),
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=telemetry.bytes_max,
        delta_temporality=True,
        requested_metrics=list(instance.metrics),
    )
