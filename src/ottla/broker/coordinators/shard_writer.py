"""Performing what a shard decides: append its records, replay them, answer once they are committed.

Owns the order of these steps. Decides nothing itself.

1. The records of a decision are appended as one batch and replayed at once. Replies and effects wait until the batch is committed
   (`ShardCommits`).
2. A decision without records also waits until the log is committed as it stands: its reply may rest on records that a failover
   could still lose.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.broker.coordinators.shard_commits import ShardCommits, as_coordinator_error, refuse
from ottla.coordinator.shard import CoordinatorRecord, Decision, Shard
from ottla.errors import KafkaError
from ottla.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from ottla.broker.coordinators.shard_host import Coordinator, HostedShard
    from ottla.broker.coordinators.shard_timers import ShardTimers
    from ottla.broker.replicas.partitions import Partitions
    from ottla.ports import Clock

logger = logging.getLogger(__name__)

S = TypeVar("S", bound=Shard)

_BATCH_SLACK_BYTES: Final = 1024
_RECORD_OVERHEAD_BYTES: Final = 32
_TOMBSTONES_SPLIT_FROM: Final = 100


class ShardWriter(Generic[S]):
    def __init__(
        self,
        coordinator: Coordinator[S],
        partitions: Partitions,
        clock: Clock,
        timers: ShardTimers,
        commits: ShardCommits[S],
        reload: Callable[[HostedShard[S], KafkaError], None],
    ) -> None:
        self._coordinator = coordinator
        self._partitions = partitions
        self._clock = clock
        self._timers = timers
        self._commits = commits
        self._reload = reload

    def perform(self, hosted: HostedShard[S], decision: Decision) -> None:
        if decision.records:
            self._append(hosted, decision)
            return
        if decision.timers:
            self._set_timers(hosted, decision)
        if decision.replies or decision.effects:
            try:
                partition = self._partitions.get(hosted.topic_partition)
            except KafkaError as error:
                refuse(decision, as_coordinator_error(error))
                return
            self._commits.release(hosted, partition, partition.log.log_end_offset, decision)

    def _append(self, hosted: HostedShard[S], decision: Decision) -> None:
        shard = hosted.shard
        assert shard is not None
        now_ms = self._clock.now_ms()
        producer_id, producer_epoch = decision.producer or (NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
        try:
            partition = self._partitions.get(hosted.topic_partition)
            last_offset = -1
            for records in batches(decision, partition.rules.max_message_bytes):
                last_offset = partition.append_own(
                    [(record.key, record.value) for record in records],
                    now_ms,
                    codec=self._coordinator.codec,
                    producer_id=producer_id,
                    producer_epoch=producer_epoch,
                ).last_offset
                if decision.message is not None:
                    continue
                for record in records:
                    if record.message is None:
                        shard.replay(record.key, record.value, producer_id)
                    else:
                        shard.replay_message(record.message, producer_id)
            if decision.message is not None:
                shard.replay_message(decision.message, producer_id)
        except KafkaError as error:
            logger.warning("Cannot append to %s: %s", hosted.topic_partition, error)
            failure = as_coordinator_error(error)
            refuse(decision, failure)
            if not decision.pure and not hosted.unloaded:
                self._reload(hosted, failure)
            return
        self._set_timers(hosted, decision)
        self._commits.release(hosted, partition, last_offset + 1, decision)

    def _set_timers(self, hosted: HostedShard[S], decision: Decision) -> None:
        if decision.timers and not hosted.unloaded:
            self._timers.set(hosted, decision.timers)


def batches(decision: Decision, bytes_max: int) -> Iterable[list[CoordinatorRecord]]:
    """The records of a decision as batches: one, because they belong together. Only many tombstones, each of which stands for
    itself, are split to fit `max.message.bytes`."""
    records = decision.records
    if not decision.pure or len(records) < _TOMBSTONES_SPLIT_FROM or any(record.value is not None for record in records):
        return [records]
    split: list[list[CoordinatorRecord]] = [[]]
    room = limit = bytes_max - _BATCH_SLACK_BYTES
    for record in records:
        size = len(record.key) + _RECORD_OVERHEAD_BYTES
        if size > room and split[-1]:
            split.append([])
            room = limit
        split[-1].append(record)
        room -= size
    return split
