"""InitProducerId: a producer gets its producer id and epoch (F63, F64).

Without a transactional id every request gets a new producer id with epoch 0. With one, the transaction coordinator bumps the
epoch, which fences the previous producer; an open transaction is aborted first, and the client retries meanwhile
(CONCURRENT_TRANSACTIONS). Two-phase commit (version 6, KIP-939) is not served.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from ottla.broker.controller.producer_ids import ProducerIds
from ottla.broker.coordinators.reply import Reply
from ottla.broker.coordinators.transaction_coordinators import TransactionCoordinators
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from ottla.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_FENCED_FROM: Final = 4
"""The version that knows PRODUCER_FENCED."""


def handle(
    producer_ids: ProducerIds, transactions: TransactionCoordinators, request: InitProducerIdRequest, context: RequestContext
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_PRODUCER_EPOCH):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a producer id and its epoch must be given together")
    if request.transactional_id is not None:
        return _of_transactions(transactions, request, request.transactional_id, context.version)
    producer_id = producer_ids.take()
    if producer_id is None:
        return _after_allocation(producer_ids)
    return InitProducerIdResponse(producer_id=producer_id, producer_epoch=0)


def _of_transactions(
    transactions: TransactionCoordinators, request: InitProducerIdRequest, transactional_id: str, version: int
) -> InitProducerIdResponse | Awaitable[InitProducerIdResponse]:
    if not transactional_id:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
    reply: Reply[InitProducerIdResponse] = Reply()
    try:
        return transactions.ask(
            transactional_id, reply, lambda shard, ids, wall_ms: shard.init_producer_id(request, ids, reply, wall_ms)
        )
    except KafkaError as error:
        if error.code == ErrorCode.PRODUCER_FENCED and version < _FENCED_FROM:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.detail) from error
        raise


async def _after_allocation(producer_ids: ProducerIds) -> InitProducerIdResponse:
    return InitProducerIdResponse(producer_id=await producer_ids.next(), producer_epoch=0)


def refuse(request: InitProducerIdRequest, error: KafkaError) -> InitProducerIdResponse:
    return InitProducerIdResponse(error_code=error.code, producer_id=NO_PRODUCER_ID, producer_epoch=NO_PRODUCER_EPOCH)
