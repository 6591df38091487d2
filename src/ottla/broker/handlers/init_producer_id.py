"""InitProducerId: a number for an idempotent producer, which no other producer had before or will have (F63).

Without a transactional id every request gets a fresh id and epoch 0; what id the producer had before does not matter.
Transactions are not served yet: with a transactional id the answer is COORDINATOR_NOT_AVAILABLE, as from a broker that has no
coordinator.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

VERSIONS = (0, 5)


def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if request.transactional_id is not None:
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id cannot be empty")
        raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, "this release does not coordinate transactions yet")
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id and its epoch must be given together")
    producer_id = context.broker.controller.take_producer_id()
    if producer_id is None:
        return _after_allocation(context)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


async def _after_allocation(context: RequestContext) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await context.broker.controller.next_producer_id(), producer_epoch=0)


def refuse(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
