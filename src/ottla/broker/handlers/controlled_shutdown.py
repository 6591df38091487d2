"""ControlledShutdown: a broker wants to stop; the controller moves its leaderships away first (F58, C07)."""

from __future__ import annotations

from ottla.broker.controller.broker_requests import controlled_shutdown
from ottla.broker.controller.cluster_host import ClusterHost
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

VERSIONS = (1, 3)


async def handle(request: ControlledShutdownRequest, context: RequestContext) -> ControlledShutdownResponse:
    host = context.broker.controller
    if not isinstance(host, ClusterHost) or not host.in_office:
        # Of this request alone, brokers of Apache Kafka expect this word for it.
        raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, "this broker is not the controller of a cluster")
    remaining = await controlled_shutdown(host, request.broker_id, request.broker_epoch)
    return ControlledShutdownResponse(
        remaining_partitions=[RemainingPartition(topic_name=topic, partition_index=number) for topic, number in remaining]
    )
