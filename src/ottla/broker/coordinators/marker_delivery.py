"""Delivering the markers of ended transactions to all partitions of the transaction.

The marker of a partition that this broker leads is written here (`marker_writer`), the others are sent to their leaders
(`marker_sender`). A partition without a leader is retried, a deleted one needs no marker. The shard learns which markers are
committed and decides when to retry the others.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.coordinators.shard_host import now_of
from ottla.broker.replicas.commit_wait import CommitWait
from ottla.errors import ErrorCode, KafkaError
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.coordinators.marker_sender import MarkerSender
    from ottla.broker.coordinators.marker_writer import MarkerWriter
    from ottla.broker.coordinators.shard_host import HostedShard
    from ottla.broker.metadata.local_metadata import LocalMetadata
    from ottla.coordinator.txn.pending_markers import Marker
    from ottla.coordinator.txn.shard import TransactionShard
    from ottla.ports import Clock

logger = logging.getLogger(__name__)


class MarkerDelivery:
    def __init__(self, metadata: LocalMetadata, writer: MarkerWriter, sender: MarkerSender | None, clock: Clock) -> None:
        """`sender`: None on a broker alone."""
        self._metadata = metadata
        self._writer = writer
        self._sender = sender
        self._clock = clock

    def close(self) -> None:
        if self._sender is not None:
            self._sender.close()

    def deliver(self, hosted: HostedShard[TransactionShard], marker: Marker) -> None:
        from ottla.coordinator.txn.pending_markers import by_leader

        leaders, done = by_leader(marker.partitions, self._leader_of)
        retry = False
        for leader, partitions in leaders.items():
            if leader == self._metadata.broker_id:
                for topic_partition in partitions:
                    retry = not self._write(hosted, marker, topic_partition, done) or retry
            elif leader < 0 or self._sender is None:
                retry = True
            else:
                self._sender.send(leader, marker, hosted.leader_epoch, partitions, partial(self._sent, hosted, leader, marker))
        self._written(hosted, marker, done, retry)

    def _leader_of(self, topic_partition: TopicPartition) -> int | None:
        topic = self._metadata.image.topics.get(topic_partition.topic)
        if topic is None or topic_partition.partition >= len(topic.partitions):
            return None
        return topic.partitions[topic_partition.partition].leader

    def _write(
        self,
        hosted: HostedShard[TransactionShard],
        marker: Marker,
        topic_partition: TopicPartition,
        done: list[TopicPartition],
    ) -> bool:
        """Write a marker here. False: it has to be retried. `done` gets the partition if it is committed at once."""
        try:
            wait = self._writer.write(
                topic_partition,
                marker.producer_id,
                marker.producer_epoch,
                commit=marker.commit,
                coordinator_epoch=hosted.leader_epoch,
                transaction_version=marker.transaction_version,
            )
        except KafkaError as error:
            return self._take_answer(marker, topic_partition, error.code, self._metadata.broker_id, done)
        if wait is None:
            done.append(topic_partition)
        else:
            timeout_ms = self._metadata.settings.int("request.timeout.ms")
            self._writer.when_committed([wait], timeout_ms, partial(self._commit_ended, hosted, marker, wait))
        return True

    def _commit_ended(self, hosted: HostedShard[TransactionShard], marker: Marker, wait: CommitWait) -> None:
        committed = wait.error is None
        self._written(hosted, marker, [wait.partition.topic_partition] if committed else [], not committed)

    def _sent(
        self, hosted: HostedShard[TransactionShard], leader: int, marker: Marker, codes: Mapping[TopicPartition, int]
    ) -> None:
        done: list[TopicPartition] = []
        retry = False
        for topic_partition, code in codes.items():
            retry = not self._take_answer(marker, topic_partition, code, leader, done) or retry
        self._written(hosted, marker, done, retry)

    def _take_answer(
        self, marker: Marker, topic_partition: TopicPartition, code: int, leader: int, done: list[TopicPartition]
    ) -> bool:
        """What a leader answered for one partition. False: it has to be retried."""
        from ottla.coordinator.txn.pending_markers import MarkerResult, result_of

        result = result_of(code)
        if result is MarkerResult.WRITTEN:
            done.append(topic_partition)
        elif result is MarkerResult.FENCED:
            logger.warning(
                "Broker %d refused the marker of %s (producer %d, epoch %d) for %s, another coordinator has taken over: %s",
                leader,
                marker.transactional_id,
                marker.producer_id,
                marker.producer_epoch,
                topic_partition,
                ErrorCode(code).name,
            )
        return result is not MarkerResult.RETRY

    def _written(
        self,
        hosted: HostedShard[TransactionShard],
        marker: Marker,
        partitions: Collection[TopicPartition],
        retry: bool,
    ) -> None:
        """Tell the shard which partitions are done, and whether to try the others again."""
        shard = hosted.shard
        if shard is None:
            return
        now = now_of(self._clock)
        decision = shard.markers_written(marker, partitions, now.wall_ms)
        hosted.perform(decision)
        if retry or (decision.records and shard.pending_markers.get(marker.transactional_id) is not None):
            hosted.perform(shard.retry_markers(marker, now))
