"""AddOffsetsToTxn: the offsets of a group become part of a transaction, before they are committed in it (TxnOffsetCommit).

What is added is the partition of `__consumer_offsets` that the group belongs to. Clients of transaction version 2 do without.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from ottla.broker.coordinators.groups import OFFSETS_TOPIC
from ottla.broker.coordinators.shard_host import Reply
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.types import TopicPartition

VERSIONS = (0, 4)

_FENCED_FROM: Final = 2
"""The version that knows PRODUCER_FENCED."""
_VERSION_1: Final = 0


def handle(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    if context.broker.coordinators.known_leader_of(request.group_id) is None:
        return _after_creation(request, context)
    return _add(request, context)


async def _after_creation(request: AddOffsetsToTxnRequest, context: RequestContext) -> AddOffsetsToTxnResponse:
    await context.broker.coordinators.leader_of(request.group_id)
    answer = _add(request, context)
    return answer if isinstance(answer, AddOffsetsToTxnResponse) else await answer


def _add(
    request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    broker = context.broker
    offsets = TopicPartition(OFFSETS_TOPIC, broker.coordinators.partition_for(request.group_id))
    reply: Reply[AddOffsetsToTxnResponse] = Reply(lambda code: AddOffsetsToTxnResponse(error_code=code))
    try:
        return broker.transactions.ask(
            request.transactional_id,
            reply,
            lambda shard, ids, wall_ms: shard.add_partitions(
                request.transactional_id, request.producer_id, request.producer_epoch, (offsets,), _VERSION_1, reply, wall_ms
            ),
        )
    except KafkaError as error:
        if error.code == ErrorCode.PRODUCER_FENCED and context.version < _FENCED_FROM:
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH, error.detail) from error
        raise
