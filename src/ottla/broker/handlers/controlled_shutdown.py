"""ControlledShutdown: the controller moves leaderships away from a broker that is about to stop (F58, C07)."""

from __future__ import annotations

from ottla.broker.controller.broker_requests import BrokerRequests
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


async def handle(
    broker_requests: BrokerRequests, request: ControlledShutdownRequest, context: RequestContext
) -> ControlledShutdownResponse:
    if not broker_requests.state.is_active:
        # Kafka's brokers expect this error, only for this API, from a broker that is not the controller.
        raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, "this broker is not the controller of a cluster")
    remaining = await broker_requests.controlled_shutdown(request.broker_id, request.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[RemainingPartition(topic_name=topic, partition_index=number) for topic, number in remaining]
    )
