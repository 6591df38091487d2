"""AddPartitionsToTxn: add partitions to a transaction, or verify that they are part of it (F64, T10).

Clients send versions up to 3, for one transaction. Brokers send version 4 and later, for several transactions: each is added to
(a producer of transaction version 2 writes there) or only verified. If one partition of a transaction is unknown, none is added.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Mapping
from typing import Final

from ottla.broker.coordinators.reply import Reply
from ottla.broker.coordinators.transaction_coordinators import TransactionCoordinators
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.cluster.image import ClusterImage
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from ottla.types import TopicPartition

_FENCED_FROM: Final = 2
"""The version that knows PRODUCER_FENCED."""
_BATCHED_FROM: Final = 4

_Codes = Mapping[TopicPartition, int]


def handle(
    transactions: TransactionCoordinators, metadata: LocalMetadata, request: AddPartitionsToTxnRequest, context: RequestContext
) -> AddPartitionsToTxnResponse | Awaitable[AddPartitionsToTxnResponse]:
    asked = request.transactions if context.version >= _BATCHED_FROM else [_only(request)]
    answers = [_answer(transactions, metadata, transaction, context) for transaction in asked]
    if all(isinstance(answer, Mapping) for answer in answers):
        return _response(asked, answers, context.version)  # type: ignore[arg-type]
    return _after_commit(asked, answers, context.version)


async def _after_commit(
    asked: list[AddPartitionsToTxnTransaction], answers: list[_Codes | Awaitable[_Codes]], version: int
) -> AddPartitionsToTxnResponse:
    codes = []
    for transaction, answer in zip(asked, answers, strict=True):
        try:
            codes.append(answer if isinstance(answer, Mapping) else await answer)
        except KafkaError as error:
            codes.append(_refused(_partitions(transaction.topics), error, version))
    return _response(asked, codes, version)


def _answer(
    transactions: TransactionCoordinators,
    metadata: LocalMetadata,
    transaction: AddPartitionsToTxnTransaction,
    context: RequestContext,
) -> _Codes | Awaitable[_Codes]:
    partitions = _partitions(transaction.topics)
    missing = _missing(partitions, metadata.image)
    if missing:
        # One that cannot be added keeps the others out.
        return {
            partition: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if partition in missing else ErrorCode.OPERATION_NOT_ATTEMPTED
            for partition in partitions
        }
    try:
        return _ask(transactions, transaction, partitions, context)
    except KafkaError as error:
        return _refused(partitions, error, context.version)


def _ask(
    transactions: TransactionCoordinators,
    transaction: AddPartitionsToTxnTransaction,
    partitions: list[TopicPartition],
    context: RequestContext,
) -> _Codes | Awaitable[_Codes]:
    transactional_id = transaction.transactional_id
    producer_id, producer_epoch = transaction.producer_id, transaction.producer_epoch
    if transaction.verify_only:
        hosted, shard = transactions.shards.find(transactional_id)
        return transactions.shards.when_committed(
            hosted, lambda: shard.verify_partitions(transactional_id, producer_id, producer_epoch, partitions)
        )
    client_version = 2 if context.version >= _BATCHED_FROM else 0
    reply: Reply[_Codes] = Reply(lambda code: dict.fromkeys(partitions, code))
    return transactions.ask(
        transactional_id,
        reply,
        lambda shard, ids, wall_ms: shard.add_partitions(
            transactional_id, producer_id, producer_epoch, partitions, client_version, reply, wall_ms
        ),
    )


def _refused(partitions: list[TopicPartition], error: KafkaError, version: int) -> _Codes:
    code = error.code
    if code == ErrorCode.PRODUCER_FENCED and version < _FENCED_FROM:
        code = ErrorCode.INVALID_PRODUCER_EPOCH
    return dict.fromkeys(partitions, code)


def _partitions(topics: Iterable[AddPartitionsToTxnTopic]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition) for topic in topics for partition in topic.partitions]


def _missing(partitions: Iterable[TopicPartition], image: ClusterImage) -> set[TopicPartition]:
    return {
        partition
        for partition in partitions
        if (topic := image.topics.get(partition.topic)) is None or not 0 <= partition.partition < len(topic.partitions)
    }


def _only(request: AddPartitionsToTxnRequest) -> AddPartitionsToTxnTransaction:
    return AddPartitionsToTxnTransaction(
        transactional_id=request.v3_and_below_transactional_id,
        producer_id=request.v3_and_below_producer_id,
        producer_epoch=request.v3_and_below_producer_epoch,
        topics=request.v3_and_below_topics,
    )


def _response(
    asked: Iterable[AddPartitionsToTxnTransaction], answers: Iterable[_Codes], version: int
) -> AddPartitionsToTxnResponse:
    results = [
        AddPartitionsToTxnResult(
            transactional_id=transaction.transactional_id,
            topic_results=[
                AddPartitionsToTxnTopicResult(
                    name=topic.name,
                    results_by_partition=[
                        AddPartitionsToTxnPartitionResult(
                            partition_index=partition,
                            partition_error_code=codes[TopicPartition(topic.name, partition)],
                        )
                        for partition in topic.partitions
                    ],
                )
                for topic in transaction.topics
            ],
        )
        for transaction, codes in zip(asked, answers, strict=True)
    ]
    if version >= _BATCHED_FROM:
        return AddPartitionsToTxnResponse(results_by_transaction=results)
    return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results[0].topic_results)


def refuse(request: AddPartitionsToTxnRequest, error: KafkaError) -> AddPartitionsToTxnResponse:
    if request.transactions:
        return AddPartitionsToTxnResponse(error_code=error.code)
    only = _only(request)
    return _response([only], [dict.fromkeys(_partitions(only.topics), error.code)], 0)
