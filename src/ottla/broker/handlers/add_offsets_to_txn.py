"""AddOffsetsToTxn: add a group's partition of `__consumer_offsets` to a transaction, before TxnOffsetCommit.

Clients of transaction version 2 do not send it: TxnOffsetCommit adds the partition.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.coordinators.group_shards import OFFSETS_TOPIC
from ottla.broker.coordinators.reply import Reply
from ottla.broker.coordinators.transaction_coordinators import TransactionCoordinators
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from ottla.types import TopicPartition

_FENCED_FROM: Final = 2
"""The version that knows PRODUCER_FENCED."""
_VERSION_1: Final = 0


def handle(
    groups: GroupCoordinators, transactions: TransactionCoordinators, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    if groups.shards.topic.known_leader_of(request.group_id) is None:
        return _after_creation(groups, transactions, request, context)
    return _add(groups, transactions, request, context)


async def _after_creation(
    groups: GroupCoordinators, transactions: TransactionCoordinators, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse:
    await groups.shards.topic.leader_of(request.group_id)
    answer = _add(groups, transactions, request, context)
    return answer if isinstance(answer, AddOffsetsToTxnResponse) else await answer


def _add(
    groups: GroupCoordinators, transactions: TransactionCoordinators, request: AddOffsetsToTxnRequest, context: RequestContext
) -> AddOffsetsToTxnResponse | Awaitable[AddOffsetsToTxnResponse]:
    offsets = TopicPartition(OFFSETS_TOPIC, groups.shards.topic.partition_for(request.group_id))
    reply: Reply[AddOffsetsToTxnResponse] = Reply(lambda code: AddOffsetsToTxnResponse(error_code=code))
    try:
        return transactions.ask(
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
