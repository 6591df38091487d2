"""Transactions over the blocking client, one request at a time, with a producer id and epoch that may travel.

Owns: the requests of a transaction and their errors. Keeps no state of one: who produces (`ProducerIdAndEpoch`) is a value that
the driver gets and any number of tasks write with, each for partitions of its own. Sequences are the writer's.

The versions asked for are those of the first generation (partitions and groups are added explicitly, EndTxn leaves the epoch
as it is), which every Kafka since 2.5 serves, 4.x too. The epoch is bumped by InitProducerId, which begins each transaction here.
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


Offsets = Mapping[TopicPartition, CommittedOffset]

P = TypeVar("P")


def offsets_by_topic(offsets: Offsets, partition: Callable[..., P]) -> dict[str, list[P]]:
    """As the requests that commit want them; `partition` is the class one of them has for it."""
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
    """Fence whoever had this id, abort what he left open, and be the one with the new epoch.

    Waits while the transaction before is being completed. The broker refuses a timeout above its `transaction.max.timeout.ms`.
    """
    request = InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=timeout_ms)
    answer = client.call_coordinator(transactional_id, "transaction", request, max_version=_INIT_VERSION_MAX)
    return ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch)


def add_partitions(
    client: Client, transactional_id: str, producer: ProducerIdAndEpoch, partitions: Iterable[TopicPartition]
) -> None:
    """Make partitions part of the transaction, before anything is written to them."""
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
    """Make a group's offsets part of the transaction, before `txn_offset_commit`."""
    request = AddOffsetsToTxnRequest(
        transactional_id=transactional_id,
        producer_id=producer.producer_id,
        producer_epoch=producer.producer_epoch,
        group_id=group_id,
    )
    client.call_coordinator(transactional_id, "transaction", request)


def txn_offset_commit(
    client: Client, transactional_id: str, producer: ProducerIdAndEpoch, group_id: str, offsets: Offsets
) -> None:
    """Offsets that become valid when the transaction commits. A member of the group is nobody: it must have no members."""
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
    """Commit or abort. Sent again after a lost answer it has the same outcome."""
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
    """Append one record batch; the offset of its first record, -1 if it had been appended before.

    The batch carries producer id, epoch and sequence, so sending it again after a lost answer stores it once.
    """
    if acks not in (-1, 1):
        raise ValueError("acks is -1 or 1: without an answer nothing can be known")
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
