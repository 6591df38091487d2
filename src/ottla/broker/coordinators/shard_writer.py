"""Performing what a shard decides: append its records, replay them, answer once they are committed.

Owns the order of these steps. Decides nothing itself.

1. The records of a decision are appended as one batch and replayed at once. Replies and effects wait until the batch is committed
   (`CommitWait`).
2. A decision without records also waits until the log is committed as it stands: its reply may rest on records that a failover
   could still lose.
3. A reply that need not wait costs neither a task nor a future: heartbeats, and commits while the ISR is this broker alone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.broker.coordinators.reply import Reply
from ottla.broker.replicas.commit_wait import CommitWait, wait_for_commits
from ottla.coordinator.shard import CoordinatorRecord, Decision, Shard
from ottla.errors import ErrorCode, KafkaError
from ottla.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

if TYPE_CHECKING:
    from ottla.broker.coordinators.shard_host import Coordinator, HostedShard
    from ottla.broker.coordinators.shard_timers import ShardTimers
    from ottla.broker.network.purgatory import Purgatory
    from ottla.broker.replicas.partition import Partition
    from ottla.broker.replicas.partitions import Partitions
    from ottla.ports import Clock

logger = logging.getLogger(__name__)

T = TypeVar("T")
S = TypeVar("S", bound=Shard)

_BATCH_SLACK_BYTES: Final = 1024
_RECORD_OVERHEAD_BYTES: Final = 32
_TOMBSTONES_SPLIT_FROM: Final = 100


class ShardWriter(Generic[S]):
    def __init__(
        self,
        coordinator: Coordinator[S],
        partitions: Partitions,
        purgatory: Purgatory,
        clock: Clock,
        timers: ShardTimers,
        reload: Callable[[HostedShard[S], KafkaError], None],
    ) -> None:
        self._coordinator = coordinator
        self._partitions = partitions
        self._purgatory = purgatory
        self._clock = clock
        self._timers = timers
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
                _refuse(decision, _as_coordinator_error(error))
                return
            self._release_at(hosted, partition, partition.log.log_end_offset, decision)

    def when_committed(self, hosted: HostedShard[S], read: Callable[[], T]) -> T | asyncio.Future[T]:
        """`read()` once all that is in the log now is committed."""
        try:
            partition = self._partitions.get(hosted.topic_partition)
        except KafkaError as error:
            raise _as_coordinator_error(error) from error
        end_offset = partition.log.log_end_offset
        if partition.log.high_watermark >= end_offset:
            return read()

        def ended(error: KafkaError | None) -> T:
            if error is not None:
                raise error
            return read()

        return self._after_commit(hosted, partition, end_offset, ended)

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
            failure = _as_coordinator_error(error)
            _refuse(decision, failure)
            if not decision.pure and not hosted.unloaded:
                self._reload(hosted, failure)
            return
        self._set_timers(hosted, decision)
        self._release_at(hosted, partition, last_offset + 1, decision)

    def _set_timers(self, hosted: HostedShard[S], decision: Decision) -> None:
        if decision.timers and not hosted.unloaded:
            self._timers.set(hosted, decision.timers)

    # Once it is committed

    def _release_at(self, hosted: HostedShard[S], partition: Partition, end_offset: int, decision: Decision) -> None:
        if partition.log.high_watermark >= end_offset:
            self._release(hosted, decision)
        elif decision.replies or decision.effects:
            self._wait_for_commit(hosted, partition, end_offset, decision)

    def _release(self, hosted: HostedShard[S], decision: Decision) -> None:
        for reply, response in decision.replies:
            assert isinstance(reply, Reply)
            reply.answer(response)
        for effect in decision.effects:
            self._coordinator.perform_effect(hosted, effect)

    def _wait_for_commit(self, hosted: HostedShard[S], partition: Partition, end_offset: int, decision: Decision) -> None:
        def ended(error: KafkaError | None) -> None:
            if error is None:
                self._release(hosted, decision)
                return
            _refuse(decision, error)
            if decision.effects and not hosted.unloaded and error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
                # The records stay in the log: the effects are due when they are committed after all.
                self._wait_for_commit(hosted, partition, end_offset, Decision(effects=decision.effects))

        self._after_commit(hosted, partition, end_offset, ended)

    def _after_commit(
        self, hosted: HostedShard[S], partition: Partition, end_offset: int, ended: Callable[[KafkaError | None], T]
    ) -> asyncio.Future[T]:
        """`ended(None)` when the log is committed up to `end_offset`. `ended(error)`, with the error for clients, when the wait
        ends otherwise or the shard was unloaded in the meantime."""
        wait = CommitWait(self._partitions, partition, end_offset)

        def answer() -> T:
            if hosted.unloaded:
                return ended(KafkaError(ErrorCode.NOT_COORDINATOR, "the coordinator moved to another broker"))
            return ended(_as_coordinator_error(wait.error) if wait.error is not None else None)

        return wait_for_commits(self._purgatory, [wait], self._coordinator.commit_timeout_ms, answer)


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


def _refuse(decision: Decision, error: KafkaError) -> None:
    for reply, _ in decision.replies:
        assert isinstance(reply, Reply)
        reply.fail(error)


_AS_NOT_AVAILABLE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT}
)
_AS_NOT_COORDINATOR: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_UNCHANGED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE})
"""Errors of the log for a fenced producer that commits offsets in a transaction."""


def _as_coordinator_error(error: KafkaError) -> KafkaError:
    """The error of an append, as the clients of a coordinator know it (Kafka's mapping)."""
    if error.code in _AS_NOT_AVAILABLE:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.detail)
    if error.code in _AS_NOT_COORDINATOR:
        return KafkaError(ErrorCode.NOT_COORDINATOR, error.detail)
    if error.code in _UNCHANGED:
        return error
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.detail)
