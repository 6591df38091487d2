"""Transactional Produce requests: which partitions are part of the producer's transaction (T10).

Owns the question to the transaction coordinator about partitions that have no records of the transaction yet. From Produce
version 12 on, asking also adds the partition to the transaction (KIP-890).
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import partial

from ottla.broker.coordinators.transaction_verifier import Refusals, RefusalsLater, TransactionVerifier
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partitions import Partitions
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.produce import ProduceRequest
from ottla.records.batch import PRODUCER_ID_AT, RECORDS_AT, TRANSACTIONAL_BIT
from ottla.types import NO_PRODUCER_ID, Buffer, ProducerIdAndEpoch, TopicPartition

Ask = Callable[[list[TopicPartition]], Refusals | RefusalsLater]

_BUMPS_EPOCHS_FROM = 12
_TOPIC_IDS_FROM = 13
_ATTRIBUTES_LOW_BYTE = 22
_PRODUCER = struct.Struct(">qhi")

_ATTEMPTS_MAX = 10
"""Questions about one partition, while transaction markers arrive in between."""


def verify(
    partitions: Partitions, verifier: TransactionVerifier, request: ProduceRequest, version: int
) -> Refusals | RefusalsLater:
    """The partitions of a transactional request that may not be written to, now or after the coordinator has answered."""
    asked_about: list[Partition] = []
    producer: ProducerIdAndEpoch | None = None
    for topic in request.topic_data:
        name = partitions.topic_name(topic.topic_id) if version >= _TOPIC_IDS_FROM else topic.name
        for data in topic.partition_data:
            found = _transactional_producer(data.records)
            if found is None or name is None:
                continue
            author, sequence = found
            if producer is not None and author != producer:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, "records of two producers in one transactional request")
            producer = author
            partition = partitions.find(TopicPartition(name, data.index))
            # A partition that cannot be written to must not become part of the transaction.
            if partition is None or not partition.is_leader or partition.is_offline:
                continue
            producers = partition.log.producers
            known = producers.get(author.producer_id)
            if known is not None and author.producer_epoch < known.epoch:
                # Nor one that will refuse the producer epoch: it would refuse the transaction's marker as well.
                continue
            if not producers.has_ongoing_transaction(*author):
                producers.attempt(*author, sequence, bumps_epochs=version >= _BUMPS_EPOCHS_FROM)
                asked_about.append(partition)
    if producer is None or not asked_about:
        return {}
    producer_id, epoch = producer
    transactional_id = request.transactional_id
    assert transactional_id is not None

    def ask(about: list[TopicPartition]) -> Refusals | RefusalsLater:
        return verifier.verify(transactional_id, producer_id, epoch, about, "produce", version)

    answer = ask([partition.topic_partition for partition in asked_about])
    return answer if isinstance(answer, dict) else partial(_guarded, ask, answer, asked_about, producer_id)


async def _guarded(ask: Ask, answer: RefusalsLater, partitions: list[Partition], producer_id: int) -> Refusals:
    """The coordinator's answer, valid only where no transaction marker arrived meanwhile.

    A marker voids the partition's guard: the answer may be about the transaction that has just ended. It may also be about the
    next one, whose producer did not wait for the markers (KIP-890). So the coordinator is asked again.
    """
    refusals: dict[TopicPartition, KafkaError] = {}
    for attempts_left in reversed(range(_ATTEMPTS_MAX)):
        guards = [(partition, partition.start_verification(producer_id)) for partition in partitions]
        refusals |= await answer()
        partitions = []
        for partition, guard in guards:
            key = partition.topic_partition
            if not partition.end_verification(producer_id, guard, keep=key not in refusals) and key not in refusals:
                partitions.append(partition)
        if not partitions or not attempts_left:
            break
        again = ask([partition.topic_partition for partition in partitions])
        if isinstance(again, dict):
            refusals.update(again)
            return refusals
        answer = again
    for partition in partitions:
        refusals[partition.topic_partition] = KafkaError(
            ErrorCode.INVALID_TXN_STATE, "the transaction ended while its coordinator was asked about it"
        )
    return refusals


def _transactional_producer(records: Buffer | None) -> tuple[ProducerIdAndEpoch, int] | None:
    """The producer of a transactional batch and its first sequence. None for any other bytes."""
    if records is None or len(records) < RECORDS_AT:
        return None
    if not records[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_BIT:
        return None
    producer_id, epoch, sequence = _PRODUCER.unpack_from(records, PRODUCER_ID_AT)
    return (ProducerIdAndEpoch(producer_id, epoch), sequence) if producer_id > NO_PRODUCER_ID else None
