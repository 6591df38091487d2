"""AllocateProducerIds: the controller gives a broker a block of producer ids (KIP-730)."""

from __future__ import annotations

from ottla.broker.controller.broker_requests import BrokerRequests
from ottla.broker.network.context import RequestContext
from ottla.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse


async def handle(
    broker_requests: BrokerRequests, request: AllocateProducerIdsRequest, context: RequestContext
) -> AllocateProducerIdsResponse:
    block = await broker_requests.allocate_producer_ids(request.broker_id, request.broker_epoch)
    return AllocateProducerIdsResponse(producer_id_start=block[0], producer_id_len=len(block))
