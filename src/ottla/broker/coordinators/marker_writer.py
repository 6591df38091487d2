"""Writing markers to the partitions that this broker leads: the control batches that end a transaction.

Serves both sources of markers: the coordinator on this broker (`marker_delivery`) and WriteTxnMarkers from other brokers. A
marker on `__consumer_offsets` also completes the offsets that the transaction committed, as soon as it is in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

from ottla.broker.coordinators.group_shards import OFFSETS_TOPIC
from ottla.broker.replicas.commit_wait import CommitWait, wait_for_commits
from ottla.types import TopicPartition

if TYPE_CHECKING:
    import asyncio

    from ottla.broker.coordinators.group_coordinators import GroupCoordinators
    from ottla.broker.network.purgatory import Purgatory
    from ottla.broker.replicas.partitions import Partitions
    from ottla.ports import Clock

T = TypeVar("T")


class MarkerWriter:
    def __init__(self, partitions: Partitions, groups: GroupCoordinators, purgatory: Purgatory, clock: Clock) -> None:
        self._partitions = partitions
        self._purgatory = purgatory
        self._groups = groups
        self._clock = clock

    def write(
        self,
        topic_partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        transaction_version: int,
    ) -> CommitWait | None:
        """Append one marker. Returns what to wait for; None if it is committed already. KafkaError: it is not written."""
        partition = self._partitions.get(topic_partition)
        has_offsets = topic_partition.topic == OFFSETS_TOPIC
        if has_offsets:
            self._groups.check_loaded(topic_partition.partition)
        info = partition.append_marker(
            producer_id,
            producer_epoch,
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            now_ms=self._clock.now_ms(),
            transaction_version=transaction_version,
        )
        if has_offsets:
            self._groups.marker_written(topic_partition.partition, producer_id, commit=commit)
        end_offset = info.last_offset + 1
        return CommitWait(self._partitions, partition, end_offset) if partition.log.high_watermark < end_offset else None

    def when_committed(self, waits: Sequence[CommitWait], timeout_ms: int, answer: Callable[[], T]) -> asyncio.Future[T]:
        """`answer()` once the markers are committed, or their waits ended otherwise."""
        return wait_for_commits(self._purgatory, waits, timeout_ms, answer)
