"""The question to the coordinator of a transaction on another broker: may these partitions be written to (KIP-890, T10)?"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from ottla.broker.network.inter_broker import PeerUnavailable
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.app import Broker

_ABORTABLE_FROM: Final = 5
"""The version that answers TRANSACTION_ABORTABLE; before, INVALID_TXN_STATE."""


async def ask_coordinator(
    broker: Broker,
    coordinator: int,
    transactional_id: str,
    producer_id: int,
    producer_epoch: int,
    partitions: Collection[TopicPartition],
    *,
    adds: bool,
) -> dict[TopicPartition, KafkaError]:
    """The partitions that may not be written to, with the coordinator's reason. `adds`: they become part of the transaction."""
    if coordinator < 0:
        return dict.fromkeys(
            partitions, KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"nobody coordinates {transactional_id}")
        )
    topics: dict[str, AddPartitionsToTxnTopic] = {}
    for name, number in partitions:
        topic = topics.get(name)
        if topic is None:
            topic = topics[name] = AddPartitionsToTxnTopic(name=name, partitions=[])
        topic.partitions.append(number)
    transaction = AddPartitionsToTxnTransaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        verify_only=not adds,
        topics=list(topics.values()),
    )
    try:
        response: AddPartitionsToTxnResponse = await broker.inter_broker.call(
            coordinator,
            "transactions",
            "add_partitions_to_txn",
            AddPartitionsToTxnRequest(transactions=[transaction]),
            version_max=_ABORTABLE_FROM,
            timeout_ms=broker.settings.int("request.timeout.ms"),
        )
    except PeerUnavailable as error:
        return dict.fromkeys(partitions, KafkaError(ErrorCode.NETWORK_EXCEPTION, str(error)))
    if response.error_code:
        return dict.fromkeys(partitions, KafkaError(ErrorCode(response.error_code)))
    refusals: dict[TopicPartition, KafkaError] = {}
    unanswered = set(partitions)
    for result in response.results_by_transaction:
        for told in result.topic_results:
            for answer in told.results_by_partition:
                key = TopicPartition(told.name, answer.partition_index)
                unanswered.discard(key)
                if answer.partition_error_code:
                    refusals[key] = KafkaError(ErrorCode(answer.partition_error_code))
    for key in unanswered:
        refusals[key] = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the coordinator did not speak of it")
    return refusals
