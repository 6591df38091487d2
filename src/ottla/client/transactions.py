"""Transactions over the blocking client, one request at a time.

Keeps no state: `ProducerIdAndEpoch` is a value that a driver gets and any number of tasks write with, each to its own partitions.
Sequence numbers are the writer's.

The requests use transaction version 1 (partitions and groups are added explicitly, EndTxn does not bump the epoch), which Kafka
2.5 and later supports. InitProducerId starts each transaction and bumps the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple, TypeVar

from ottla.client.blocking import Client
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from ottla.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from ottla.protocol.messages.end_txn import EndTxnRequest
from ottla.protocol.messages.init_producer_id import InitProducerIdRequest
from ottla.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from ottla.types import Buffer, ProducerIdAndEpoch, TopicPartition

# From 12 on Produce adds its partition itself, from 5 on EndTxn bumps the epoch and TxnOffsetCommit adds the group: the second
# generation of KIP-890, which Kafka 3.9 does not have.
_PRODUCE_VERSION_MAX = 11
_END_TXN_VERSION_MAX = 4
_TXN_OFFSET_COMMIT_VERSION_MAX = 4
_ADD_PARTITIONS_VERSION_MAX = 3
_INIT_VERSION_MAX = 5


class CommittedOffset(NamedTuple):
    offset: int
    metadata: str = ""
    leader_epoch: int = -1


GroupOffsets = Mapping[TopicPartition, CommittedOffset]

P = TypeVar("P")


def offsets_by_topic(offsets: GroupOffsets, partition: Callable[..., P]) -> dict[str, list[P]]:
    """Offsets in the form of a commit request, whose class for a partition is `partition`."""
    found: dict[str, list[P]] = {}
    for (topic, index), committed in offsets.items():
        found.setdefault(topic, []).append(
            partition(
                partition_index=index,
                committed_offset=committed.offset,
                committed_leader_epoch=committed.leader_epoch,
                committed_metadata=committed.metadata,
            )
        )
    return found


def init_producer_id(client: Client, transactional_id: str, timeout_ms: int) -> ProducerIdAndEpoch:
    """Get a new epoch: fence the previous producer of the id and abort its open transaction.

    Waits while the previous transaction is being completed. The broker refuses a timeout above its `transaction.max.timeout.ms`.
    """
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    answer = client.call_coordinator(transactional_id, "transaction", request, max_version=_INIT_VERSION_MAX)
    return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)


def idempotent_producer(client: Client) -> ProducerIdAndEpoch:
    """A producer without transactions, whose batches are stored once also if a request is retried."""
    request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=0)
    answer = client.call_any(request, max_version=_INIT_VERSION_MAX)
    return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)


def add_partitions(
    client: Client, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> None:
    """Add partitions to the transaction. Required before the first write to them."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions:
        by_topic.setdefault(topic, []).append(partition)
    if not by_topic:
        return
    request = AddPartitionsToTxnRequest(
        v3_and_below_transactional_id=transactional_id,
        v3_and_below_producer_id=producer.producer_id,
        v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[AddPartitionsToTxnTopic(name=topic, partitions=indexes) for topic, indexes in by_topic.items()],
    )
    client.call_coordinator(transactional_id, "transaction", request, max_version=_ADD_PARTITIONS_VERSION_MAX)


def add_offsets(client: Client, transactional_id: str, producer: ProducerIdAndEpoch, group_id: str) -> None:
    """Add the offsets of a group to the transaction. Required before `txn_offset_commit`."""
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id=group_id,
    )
    client.call_coordinator(transactional_id, "transaction", request)


def txn_offset_commit(
    client: Client, transactional_id: str, producer: ProducerIdAndEpoch, group_id: str, offsets: GroupOffsets
) -> None:
    """Commit offsets of a group without members as part of the transaction."""
    by_topic = offsets_by_topic(offsets, TxnOffsetCommitRequestPartition)
    if not by_topic:
        return
    request = TxnOffsetCommitRequest(
        transactional_id=transactional_id,
        group_id=group_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        topics=[TxnOffsetCommitRequestTopic(name=topic, partitions=parts) for topic, parts in by_topic.items()],
    )
    client.call_coordinator(group_id, "group", request, max_version=_TXN_OFFSET_COMMIT_VERSION_MAX)


def end_txn(client: Client, transactional_id: str, producer: ProducerIdAndEpoch, *, commit: bool) -> None:
    """Commit or abort. A retry after a lost response has the same result."""
    request = EndTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        committed=commit,
    )
    client.call_coordinator(transactional_id, "transaction", request, max_version=_END_TXN_VERSION_MAX)


def produce(
    client: Client,
    topic: str,
    partition: int,
    batch: Buffer,
    *,
    transactional_id: str | None = None,
    acks: int = -1,
    timeout_ms: int = 30_000,
) -> int:
    """Append one record batch. Returns the offset of its first record, -1 if it was appended before.

    The batch carries producer id, epoch and sequence, so a retry after a lost response stores it once.
    """
    if acks not in (-1, 1):
        raise ValueError("acks must be -1 or 1: with acks=0 the broker sends no reply")
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)])
    request = ProduceRequest(transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=[data])
    try:
        answer = client.call_leader(topic, partition, request, max_version=_PRODUCE_VERSION_MAX)
    except KafkaError as error:
        if error.code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            return -1
        raise
    base_offset: int = answer.responses[0].partition_responses[0].base_offset
    return base_offset
