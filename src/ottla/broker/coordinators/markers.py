"""Markers, written to the partitions this broker leads: the control batches that end a transaction.

One way for both senders, the coordinator in this process and WriteTxnMarkers from another. A marker on `__consumer_offsets`
settles what the transaction has committed for groups, as soon as it is in the log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla.broker.coordinators.groups import OFFSETS_TOPIC
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.app import Broker
    from ottla.broker.replicas.partition import Partition


def write_marker(
    broker: Broker,
    topic_partition: TopicPartition,
    producer_id: int,
    producer_epoch: int,
    *,
    commit: bool,
    coordinator_epoch: int,
    transaction_version: int = 0,
) -> tuple[Partition, int]:
    """Append one. Returns the partition and the offset its high watermark has to reach. KafkaError: it is not there."""
    partition = broker.partitions.get(topic_partition)
    is_of_groups = topic_partition.topic == OFFSETS_TOPIC
    if is_of_groups:
        broker.coordinators.check_loaded(topic_partition.partition)
    info = partition.append_marker(
        producer_id,
        producer_epoch,
        commit=commit,
        coordinator_epoch=coordinator_epoch,
        now_ms=broker.world.clock.now_ms(),
        transaction_version=transaction_version,
    )
    if is_of_groups:
        broker.coordinators.settle(topic_partition.partition, producer_id, commit=commit)
    return partition, info.last_offset + 1
