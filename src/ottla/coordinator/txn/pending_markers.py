"""Markers that the partitions of ended transactions have not got yet.

Owns the pending markers of one shard. Writes none: `broker.coordinators.marker_delivery` does.

1. Markers are pending from the replay of PREPARE_COMMIT or PREPARE_ABORT until the replay of COMPLETE_*. A coordinator that takes
   over finds those of its predecessor in the log (T06). It may write a marker a second time, which does no harm.
2. A deleted partition needs no marker.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from ottla.coordinator.txn.transaction_metadata import State, TransactionMetadata
from ottla.errors import ErrorCode
from ottla.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Marker:
    """The end of one transaction, and the partitions that need its marker."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    transaction_version: int
    partitions: frozenset[TopicPartition]

    def is_of(self, other: Marker) -> bool:
        """Whether both end the same transaction."""
        return (self.transactional_id, self.producer_id, self.producer_epoch) == (
            other.transactional_id,
            other.producer_id,
            other.producer_epoch,
        )


def marker_of(transaction: TransactionMetadata) -> Marker:
    """The marker of a transaction in PREPARE_*."""
    return Marker(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.state == State.PREPARE_COMMIT,
        transaction.client_version,
        transaction.partitions,
    )


class MarkerResult(Enum):
    WRITTEN = "written"
    RETRY = "retry"
    FENCED = "fenced"
    """Another coordinator has taken over and writes the marker."""


RETRY_MS: Final = 50
RETRY_MS_MAX: Final = 2_000

_WRITTEN: Final = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""A partition that answers one of the two errors can never take a marker; Kafka counts it as done too."""
_FENCED: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


def result_of(code: int) -> MarkerResult:
    """What the error code of a partition in WriteTxnMarkers means."""
    if code in _WRITTEN:
        return MarkerResult.WRITTEN
    return MarkerResult.FENCED if code in _FENCED else MarkerResult.RETRY


class PendingMarkers:
    __slots__ = ("_by_id", "_retries")

    def __init__(self) -> None:
        self._by_id: dict[str, Marker] = {}
        self._retries: dict[str, int] = {}
        """How often the markers of an id were retried. Soft state: a shard that is loaded again starts at 0."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Marker]:
        return iter(list(self._by_id.values()))

    def get(self, transactional_id: str) -> Marker | None:
        return self._by_id.get(transactional_id)

    def add(self, transaction: TransactionMetadata) -> None:
        self._by_id[transaction.transactional_id] = marker_of(transaction)

    def written(self, marker: Marker, partitions: Collection[TopicPartition]) -> bool:
        """Partitions of `marker` have theirs. Whether they were the last ones; False if another transaction of the id is pending
        by now."""
        pending = self._by_id.get(marker.transactional_id)
        if pending is None or not pending.is_of(marker):
            return False
        if partitions:
            remaining = pending.partitions.difference(partitions)
            pending = self._by_id[marker.transactional_id] = replace(pending, partitions=remaining)
        return not pending.partitions

    def backoff_ms(self, transactional_id: str) -> int:
        """The time before the next retry. It doubles: an election is usually over soon, and a leader that stays away must not be
        asked all the time."""
        retries = self._retries.get(transactional_id, 0)
        if transactional_id in self._by_id:
            self._retries[transactional_id] = retries + 1
        return min(RETRY_MS << min(retries, 16), RETRY_MS_MAX)

    def remove(self, transactional_id: str) -> None:
        if self._by_id.pop(transactional_id, None) is not None:
            self._retries.pop(transactional_id, None)


def by_leader(
    partitions: Iterable[TopicPartition], leader_of: Callable[[TopicPartition], int | None]
) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
    """The partitions by the broker that leads them (-1: no leader now), and those that are deleted."""
    by_broker: dict[int, list[TopicPartition]] = {}
    deleted: list[TopicPartition] = []
    for partition in sorted(partitions):
        leader = leader_of(partition)
        if leader is None:
            deleted.append(partition)
        else:
            by_broker.setdefault(leader, []).append(partition)
    return by_broker, deleted
