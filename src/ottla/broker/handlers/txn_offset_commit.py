"""TxnOffsetCommit: commit the offsets of a group as part of a transaction (F66, T08, T09).

The offsets are pending until the transaction's marker. Before they are written, the transaction coordinator verifies that the
group's partition of `__consumer_offsets` is part of the transaction; with version 5 (transaction version 2) it adds it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Final

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.coordinators.group_shards import OFFSETS_TOPIC
from ottla.broker.coordinators.reply import Reply
from ottla.broker.coordinators.transaction_verifier import RefusalsLater, TransactionVerifier
from ottla.broker.handlers.unknown_partitions import answered, refuse_unknown
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestTopic,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.types import TopicPartition

_LOADING_FROM: Final = 2
"""Older clients treat COORDINATOR_LOAD_IN_PROGRESS as fatal."""


def handle(
    groups: GroupCoordinators,
    verifier: TransactionVerifier,
    metadata: LocalMetadata,
    request: TxnOffsetCommitRequest,
    context: RequestContext,
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    unknown = refuse_unknown(request, metadata.image, _refused)
    if not request.topics:
        return TxnOffsetCommitResponse(topics=unknown)
    return answered(
        lambda: _commit(groups, verifier, request, context.version),
        unknown,
        lambda error: _failed(request, error, context.version),
    )


def _commit(
    groups: GroupCoordinators, verifier: TransactionVerifier, request: TxnOffsetCommitRequest, version: int
) -> TxnOffsetCommitResponse | Awaitable[TxnOffsetCommitResponse]:
    groups.shards.find(request.group_id)
    offsets = TopicPartition(OFFSETS_TOPIC, groups.shards.topic.partition_for(request.group_id))
    verified = verifier.verify(
        request.transactional_id,
        request.producer_id,
        request.producer_epoch,
        [offsets],
        "txn_offset_commit",
        version,
    )
    if isinstance(verified, dict):
        if verified:
            raise verified[offsets]
        return _append(groups, request, version)
    return _after_verifying(verified, groups, request, version)


async def _after_verifying(
    verified: RefusalsLater, groups: GroupCoordinators, request: TxnOffsetCommitRequest, version: int
) -> TxnOffsetCommitResponse:
    for error in (await verified()).values():
        raise error
    answer = _append(groups, request, version)
    return await answer if isinstance(answer, asyncio.Future) else answer


def _append(
    groups: GroupCoordinators, request: TxnOffsetCommitRequest, version: int
) -> TxnOffsetCommitResponse | asyncio.Future[TxnOffsetCommitResponse]:
    hosted, shard = groups.shards.find(request.group_id)
    reply: Reply[TxnOffsetCommitResponse] = Reply()
    decision = shard.txn_offset_commit(request, version, reply, groups.shards.now())
    return groups.shards.reply_of(hosted, reply, decision)


def _refused(topic: TxnOffsetCommitRequestTopic, partitions: list[int], code: ErrorCode) -> TxnOffsetCommitResponseTopic:
    return TxnOffsetCommitResponseTopic(
        name=topic.name,
        partitions=[TxnOffsetCommitResponsePartition(partition_index=number, error_code=code) for number in partitions],
    )


def _failed(request: TxnOffsetCommitRequest, error: KafkaError, version: int) -> TxnOffsetCommitResponse:
    code = error.code
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < _LOADING_FROM:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return refuse(request, KafkaError(code, error.detail))


def refuse(request: TxnOffsetCommitRequest, error: KafkaError) -> TxnOffsetCommitResponse:
    return TxnOffsetCommitResponse(
        topics=[_refused(topic, [each.partition_index for each in topic.partitions], error.code) for topic in request.topics]
    )
