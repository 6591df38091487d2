"""AllocateProducerIds: a broker gets a block of producer ids from the controller (KIP-730)."""

from __future__ import annotations

from ottla.broker.controller.cluster_host import ClusterHost
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

VERSIONS = (0, 0)


async def handle(request: AllocateProducerIdsRequest, context: RequestContext) -> AllocateProducerIdsResponse:
    host = context.broker.controller
    if not isinstance(host, ClusterHost):
        raise KafkaError(ErrorCode.NOT_CONTROLLER, "this broker is not the controller of a cluster")
    block = await host.producer_id_block_for(request.broker_id, request.broker_epoch)
    return AllocateProducerIdsResponse(producer_id_start=block[0], producer_id_len=len(block))
