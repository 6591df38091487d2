"""Answering what a shard decided once its records are committed, and reading once the log is.

Owns the end of a decision: replies first, then effects. `CommitWait` says how a wait ends; here its errors become those that the
clients of a coordinator know.

A reply that need not wait costs neither a task nor a future: heartbeats, and commits while the ISR is this broker alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from ottla.broker.coordinators.reply import Reply
from ottla.broker.replicas.commit_wait import CommitWait, wait_for_commits
from ottla.coordinator.shard import Decision, Shard
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.coordinators.shard_host import Coordinator, HostedShard
    from ottla.broker.network.purgatory import Purgatory
    from ottla.broker.replicas.partition import Partition
    from ottla.broker.replicas.partitions import Partitions

T = TypeVar("T")
S = TypeVar("S", bound=Shard)


class ShardCommits(Generic[S]):
    def __init__(self, coordinator: Coordinator[S], partitions: Partitions, purgatory: Purgatory) -> None:
        self._coordinator = coordinator
        self._partitions = partitions
        self._purgatory = purgatory

    def release(self, hosted: HostedShard[S], partition: Partition, end_offset: int, decision: Decision) -> None:
        """Answer and perform the effects once the log is committed up to `end_offset`."""
        if partition.log.high_watermark >= end_offset:
            self._release(hosted, decision)
        elif decision.replies or decision.effects:
            self._wait(hosted, partition, end_offset, decision)

    def read(self, hosted: HostedShard[S], read: Callable[[], T]) -> T | asyncio.Future[T]:
        """`read()` once all that is in the log now is committed."""
        try:
            partition = self._partitions.get(hosted.topic_partition)
        except KafkaError as error:
            raise as_coordinator_error(error) from error
        end_offset = partition.log.log_end_offset
        if partition.log.high_watermark >= end_offset:
            return read()
        return self._after_commit(hosted, partition, end_offset, partial(_read, read))

    def _release(self, hosted: HostedShard[S], decision: Decision) -> None:
        for reply, response in decision.replies:
            assert isinstance(reply, Reply)
            reply.answer(response)
        for effect in decision.effects:
            self._coordinator.perform_effect(hosted, effect)

    def _wait(self, hosted: HostedShard[S], partition: Partition, end_offset: int, decision: Decision) -> None:
        self._after_commit(hosted, partition, end_offset, partial(self._ended, hosted, partition, end_offset, decision))

    def _ended(
        self, hosted: HostedShard[S], partition: Partition, end_offset: int, decision: Decision, error: KafkaError | None
    ) -> None:
        if error is None:
            self._release(hosted, decision)
            return
        refuse(decision, error)
        if decision.effects and not hosted.unloaded and error.code == ErrorCode.COORDINATOR_NOT_AVAILABLE:
            # The records stay in the log: the effects are due when they are committed after all.
            self._wait(hosted, partition, end_offset, Decision(effects=decision.effects))

    def _after_commit(
        self, hosted: HostedShard[S], partition: Partition, end_offset: int, ended: Callable[[KafkaError | None], T]
    ) -> asyncio.Future[T]:
        """`ended(None)` when the log is committed up to `end_offset`. `ended(error)`, with the error for clients, when the wait
        ends otherwise or the shard was unloaded in the meantime."""
        wait = CommitWait(self._partitions, partition, end_offset)
        return wait_for_commits(self._purgatory, [wait], self._coordinator.commit_timeout_ms, partial(_end, hosted, wait, ended))


def _end(hosted: HostedShard[S], wait: CommitWait, ended: Callable[[KafkaError | None], T]) -> T:
    if hosted.unloaded:
        return ended(KafkaError(ErrorCode.NOT_COORDINATOR, "the coordinator moved to another broker"))
    return ended(as_coordinator_error(wait.error) if wait.error is not None else None)


def _read(read: Callable[[], T], error: KafkaError | None) -> T:
    if error is not None:
        raise error
    return read()


def refuse(decision: Decision, error: KafkaError) -> None:
    for reply, _ in decision.replies:
        assert isinstance(reply, Reply)
        reply.fail(error)


_AS_NOT_AVAILABLE: Final = frozenset(
    {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.REQUEST_TIMED_OUT}
)
_AS_NOT_COORDINATOR: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.KAFKA_STORAGE_ERROR})
_UNCHANGED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE})
"""Errors of the log for a fenced producer that commits offsets in a transaction."""


def as_coordinator_error(error: KafkaError) -> KafkaError:
    """The error of an append, as the clients of a coordinator know it (Kafka's mapping)."""
    if error.code in _AS_NOT_AVAILABLE:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.detail)
    if error.code in _AS_NOT_COORDINATOR:
        return KafkaError(ErrorCode.NOT_COORDINATOR, error.detail)
    if error.code in _UNCHANGED:
        return error
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, error.detail)
