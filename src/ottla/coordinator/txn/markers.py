"""What is owed: the markers that partitions have yet to get from transactions that are decided.

Owns the account of one shard. Writes nothing: the host does, to its own logs or through the leaders of others.

1. A debt begins when PREPARE_COMMIT or PREPARE_ABORT is read back from the log, and ends with COMPLETE_*. So a coordinator that
   takes over finds all debts of its predecessor (T06). It may pay one twice; a partition does not mind.
2. A partition that no longer exists is owed nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final

from ottla.coordinator.txn.state import State
from ottla.coordinator.txn.transaction import Transaction
from ottla.errors import ErrorCode
from ottla.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Marker:
    """One transaction's end, and who has to hear of it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    commit: bool
    transaction_version: int
    partitions: frozenset[TopicPartition]

    def is_of(self, other: Marker) -> bool:
        """Whether both are the end of the same transaction."""
        return (self.transactional_id, self.producer_id, self.producer_epoch) == (
            other.transactional_id,
            other.producer_id,
            other.producer_epoch,
        )


def marker_of(transaction: Transaction) -> Marker:
    """What a transaction that has just been decided owes."""
    return Marker(
        transaction.transactional_id,
        transaction.producer_id,
        transaction.producer_epoch,
        transaction.state == State.PREPARE_COMMIT,
        transaction.client_version,
        transaction.partitions,
    )


class Outcome(Enum):
    WRITTEN = "written"
    RETRY = "retry"
    GIVEN_UP = "given up"
    """Another coordinator has taken over, and pays."""


RETRY_MS: Final = 50
RETRY_MS_MAX: Final = 2_000

_WRITTEN: Final = frozenset({ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION})
"""With those, that cannot take a marker, Kafka counts as done what will never be."""
_GIVEN_UP: Final = frozenset({ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED})


def outcome_of(code: int) -> Outcome:
    """What a partition's answer to a marker means."""
    if code in _WRITTEN:
        return Outcome.WRITTEN
    return Outcome.GIVEN_UP if code in _GIVEN_UP else Outcome.RETRY


class MarkersOwed:
    __slots__ = ("_by_id", "_retries")

    def __init__(self) -> None:
        self._by_id: dict[str, Marker] = {}
        self._retries: dict[str, int] = {}
        """How often the markers of an id were tried in vain. Soft: a shard that was reloaded begins anew."""

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Marker]:
        return iter(list(self._by_id.values()))

    def get(self, transactional_id: str) -> Marker | None:
        return self._by_id.get(transactional_id)

    def owe(self, transaction: Transaction) -> None:
        self._by_id[transaction.transactional_id] = marker_of(transaction)

    def paid(self, marker: Marker, partitions: Collection[TopicPartition]) -> bool:
        """Some partitions of `marker` have theirs. Whether that were the last; never so of a transaction that is not the one
        owed for."""
        owed = self._by_id.get(marker.transactional_id)
        if owed is None or not owed.is_of(marker):
            return False
        if partitions:
            owed = self._by_id[marker.transactional_id] = replace(owed, partitions=owed.partitions.difference(partitions))
        return not owed.partitions

    def pause_ms(self, transactional_id: str) -> int:
        """How long to wait before what is owed is tried again: a leader that is just being elected is soon there, and of one that
        is not nobody is to ask all the time."""
        retries = self._retries.get(transactional_id, 0)
        if transactional_id in self._by_id:
            self._retries[transactional_id] = retries + 1
        return min(RETRY_MS << min(retries, 16), RETRY_MS_MAX)

    def settle(self, transactional_id: str) -> None:
        if self._by_id.pop(transactional_id, None) is not None:
            self._retries.pop(transactional_id, None)


def by_leader(
    partitions: Iterable[TopicPartition], leader_of: Callable[[TopicPartition], int | None]
) -> tuple[dict[int, list[TopicPartition]], list[TopicPartition]]:
    """Who has to be told, by broker (-1: a partition without a leader now), and the partitions that are no more."""
    by_broker: dict[int, list[TopicPartition]] = {}
    gone: list[TopicPartition] = []
    for partition in sorted(partitions):
        leader = leader_of(partition)
        if leader is None:
            gone.append(partition)
        else:
            by_broker.setdefault(leader, []).append(partition)
    return by_broker, gone
