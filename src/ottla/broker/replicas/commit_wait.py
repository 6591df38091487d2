"""Waiting until appended records are committed: one wait for produce, markers and coordinators (F27, T12).

A `CommitWait` watches one partition. It ends in exactly one of these ways:

A. The replica is gone. The topic was deleted (UNKNOWN_TOPIC_OR_PARTITION), the replica was reassigned to other brokers
   (NOT_LEADER_OR_FOLLOWER), or another replica of the same name took its place.
B. Its data directory went offline: KAFKA_STORAGE_ERROR.
C. Another broker became leader: NOT_LEADER_OR_FOLLOWER. The wait also ends like this if this broker leads again by now: the
   leader in between may have truncated the records. A new leader epoch of the same leader does not end it.
D. The ISR shrank below `min.insync.replicas`: NOT_ENOUGH_REPLICAS_AFTER_APPEND. Only where the caller asks for it.
E. The records may be acknowledged: the high watermark passed them; for acks=1, the flush that `flush.messages` asks for ended.
F. The timeout passed: REQUEST_TIMED_OUT.
G. The broker stops: the purgatory cancels the future and nobody is answered.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla.broker.network.purgatory import Purgatory
from ottla.broker.replicas.partition import ACKS_ALL, Partition
from ottla.broker.replicas.partitions import Partitions
from ottla.errors import ErrorCode, KafkaError

T = TypeVar("T")


class CommitWait:
    """Records of one partition that are appended and not yet acknowledged."""

    def __init__(
        self,
        partitions: Partitions,
        partition: Partition,
        end_offset: int,
        acks: int = ACKS_ALL,
        ends_under_min_isr: bool = False,
    ) -> None:
        self._partitions = partitions
        self.partition = partition
        self._leading_since_epoch = partition.leading_since_epoch
        self.end_offset = end_offset
        """The offset after the last record."""
        self._acks = acks
        self._ends_under_min_isr = ends_under_min_isr
        self.done = False
        self.error: KafkaError | None = None
        """Why the records are not acknowledged, once the wait is done. None: they are (E)."""

    def try_complete(self) -> bool:
        """Whether the wait is over. The first call that returns True decides how."""
        if self.done:
            return True
        partition = self.partition
        try:
            here = self._partitions.get(partition.topic_partition)  # A
            here.check_leader()  # B, C
        except KafkaError as error:
            return self._end(error)
        if here is not partition or partition.leading_since_epoch != self._leading_since_epoch:  # A, C
            return self._end(
                KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.topic_partition} had another leader in between")
            )
        if self._ends_under_min_isr and partition.is_under_min_isr:  # D
            return self._end(
                KafkaError(
                    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
                    f"the ISR of {partition.topic_partition} shrank below min.insync.replicas after the append",
                )
            )
        if partition.awaits(self._acks, self.end_offset):
            return False
        return self._end(None)  # E

    def expire(self) -> None:
        """End the wait because its time is over (F), unless it has ended otherwise."""
        if not self.try_complete():
            self._end(
                KafkaError(
                    ErrorCode.REQUEST_TIMED_OUT, f"{self.partition.topic_partition} did not commit the records before the timeout"
                )
            )

    def _end(self, error: KafkaError | None) -> bool:
        self.done = True
        self.error = error
        return True


def wait_for_commits(
    purgatory: Purgatory, waits: Sequence[CommitWait], timeout_ms: int, answer: Callable[[], T]
) -> asyncio.Future[T]:
    """`answer()` once all `waits` are done. The caller has found that one is not done now."""

    def ended() -> T:
        for wait in waits:
            wait.expire()
        return answer()

    return purgatory.wait(
        [wait.partition.topic_partition for wait in waits],
        timeout_ms,
        lambda: all(wait.try_complete() for wait in waits),
        ended,
    )
