"""InitProducerId: who a producer is (F63, F64).

Without a transactional id every request gets a fresh producer id and epoch 0; what id the producer had before does not matter.
With one, the transaction coordinator knows the id, raises its epoch, and so fences whoever had it before; an open transaction is
aborted first, and the client asks again meanwhile (CONCURRENT_TRANSACTIONS). Two-phase commit (version 6, KIP-939) is not served.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from ottla.broker.coordinators.shard_host import Reply
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

VERSIONS = (0, 5)

_FENCED_FROM: Final = 4
"""The version that knows PRODUCER_FENCED."""


def handle(request: InitProducerIdRequest, context: RequestContext) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id and its epoch must be given together")
    if request.transactional_id is not None:
        return _of_transactions(request, request.transactional_id, context)
    producer_id = context.broker.controller.take_producer_id()
    if producer_id is None:
        return _after_allocation(context)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _of_transactions(
    request: InitProducerIdRequest, transactional_id: str, context: RequestContext
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a transactional id cannot be empty")
    reply: Reply[InitProducerIdResponse] = Reply()
    try:
        return context.broker.transactions.ask(
            transactional_id, reply, lambda shard, ids, wall_ms: shard.init_producer_id(request, ids, reply, wall_ms)
        )
    except KafkaError as error:
        if error.code == ErrorCode.PRODUCER_FENCED and context.version < _FENCED_FROM:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.detail) from error
        raise


async def _after_allocation(context: RequestContext) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await context.broker.controller.next_producer_id(), producer_epoch=0)


def refuse(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
