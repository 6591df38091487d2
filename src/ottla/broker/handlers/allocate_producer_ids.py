"""AllocateProducerIds: the controller gives a broker a block of producer ids (KIP-730)."""

from __future__ import annotations

from ottla.broker.controller.cluster_host import ClusterHost
from ottla.broker.network.context import RequestContext
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

VERSIONS = (0, 0)


async def handle(
    controller: ClusterHost, request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse:
    block = await controller.producer_id_block_for(request.broker_id, request.broker_epoch)
    return AllocateProducerIdsResponse(producer_id_start=block[0], producer_id_len=len(block))
