"""The metadata of one transactional id, and its transitions.

A transition returns a new `TransactionMetadata`, which takes effect when its record is replayed.

1. Every transition is in `TRANSITIONS`.
2. Epoch 32767 is never given to a producer, so that it can always be fenced. After 32766 the next epoch comes with a new producer
   id.
3. With transaction version 2 every end of a transaction bumps the epoch, so that late records are not taken for those of the next
   transaction (KIP-890).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, fields
from enum import IntEnum
from operator import attrgetter
from typing import Any, Final

from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.protocol.internal.txn_records import TransactionLogValue, transaction_value
from ottla.types import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_TIMESTAMP, TopicPartition

EPOCH_MAX: Final = 32767
VERSION_1: Final = 0
"""Clients before KIP-890. Kafka writes 0."""
VERSION_2: Final = 2


class State(IntEnum):
    """The numbers are in the log, the titles in DescribeTransactions and ListTransactions. Both are Kafka's."""

    EMPTY = 0
    """The producer has its id and epoch and has written nothing yet."""
    ONGOING = 1
    PREPARE_COMMIT = 2
    """Decided. The markers are still to be written."""
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    """All markers are written."""
    COMPLETE_ABORT = 5
    DEAD = 6
    """The id expires. Never in the log, which has a tombstone."""
    PREPARE_EPOCH_FENCE = 7
    """The producer is being fenced, by a new one or by the timeout. Never in the log: PREPARE_ABORT follows in the same step."""

    @property
    def title(self) -> str:
        """The name in responses."""
        return _TITLES[self]


_TITLES: Final = {state: "".join(word.capitalize() for word in state.name.split("_")) for state in State}
STATE_BY_TITLE: Final = {title: state for state, title in _TITLES.items()}
TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.ONGOING: frozenset({State.ONGOING, State.PREPARE_COMMIT, State.PREPARE_ABORT, State.PREPARE_EPOCH_FENCE}),
    State.PREPARE_COMMIT: frozenset({State.COMPLETE_COMMIT}),
    State.PREPARE_ABORT: frozenset({State.COMPLETE_ABORT}),
    State.COMPLETE_COMMIT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.COMPLETE_ABORT: frozenset({State.EMPTY, State.ONGOING, State.PREPARE_ABORT, State.DEAD}),
    State.DEAD: frozenset(),
    State.PREPARE_EPOCH_FENCE: frozenset({State.PREPARE_ABORT}),
}
"""State -> next states. EMPTY and COMPLETE_* may become PREPARE_ABORT: with transaction version 2 a producer also aborts when it
does not know whether its transaction has begun."""
PREPARED: Final = frozenset({State.PREPARE_COMMIT, State.PREPARE_ABORT})
IDLE: Final = frozenset({State.EMPTY, State.COMPLETE_COMMIT, State.COMPLETE_ABORT})
"""No transaction is open. An unused id expires in these states."""


@dataclass(frozen=True, slots=True)
class TransactionMetadata:
    transactional_id: str
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    state: State
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = NO_TIMESTAMP
    last_update_ms: int = NO_TIMESTAMP
    client_version: int = VERSION_1
    previous_producer_id: int = NO_PRODUCER_ID
    """Before the last transition."""
    next_producer_id: int = NO_PRODUCER_ID
    """The new id of a producer with exhausted epochs, from EndTxn until all markers are written."""
    last_producer_epoch: int = field(default=NO_PRODUCER_EPOCH, compare=False)
    """The previous epoch of the same producer (KIP-360). Not in the log."""

    @property
    def is_exhausted(self) -> bool:
        return is_exhausted(self.producer_epoch)

    # Transitions

    def initialised(self, expected_epoch: int | None, timeout_ms: int, wall_ms: int) -> TransactionMetadata:
        """InitProducerId. After an error the producer sends the epoch that it expects. KafkaError if that is not its own."""
        epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if self.producer_epoch in (NO_PRODUCER_EPOCH, expected_epoch):
                last_epoch = self.producer_epoch
            elif expected_epoch == self.last_producer_epoch:
                # A retry: the response to the first request was lost.
                epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
            else:
                raise KafkaError(
                    ErrorCode.PRODUCER_FENCED,
                    f"the epoch of {self.transactional_id} is {self.producer_epoch}; {expected_epoch} is not the previous one",
                )
        return self._to(
            State.EMPTY,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            last_update_ms=wall_ms,
        )

    def rotated(self, producer_id: int, timeout_ms: int, wall_ms: int, *, same_producer: bool) -> TransactionMetadata:
        """As `initialised`, with a new producer id because the epochs are exhausted."""
        return self._to(
            State.EMPTY,
            producer_id=producer_id,
            producer_epoch=0,
            last_producer_epoch=self.producer_epoch if same_producer else NO_PRODUCER_EPOCH,
            timeout_ms=timeout_ms,
            partitions=frozenset(),
            start_ms=NO_TIMESTAMP,
            last_update_ms=wall_ms,
        )

    def with_partitions(self, partitions: Iterable[TopicPartition], client_version: int, wall_ms: int) -> TransactionMetadata:
        return self._to(
            State.ONGOING,
            partitions=self.partitions.union(partitions),
            start_ms=wall_ms if self.state in IDLE else self.start_ms,
            last_update_ms=wall_ms,
            client_version=client_version,
        )

    def ended(self, *, commit: bool, client_version: int, next_producer_id: int, wall_ms: int) -> TransactionMetadata:
        """PREPARE_*. With version 2 the epoch is bumped; `completed` has the producer's next id and epoch."""
        epoch, last_epoch = self.producer_epoch, self.last_producer_epoch
        if client_version >= VERSION_2:
            epoch, last_epoch = epoch + 1, epoch
        return self._to(
            State.PREPARE_COMMIT if commit else State.PREPARE_ABORT,
            producer_epoch=epoch,
            last_producer_epoch=last_epoch,
            next_producer_id=next_producer_id,
            # Version 2 may abort without any partition: the transaction starts now.
            start_ms=wall_ms if self.state in IDLE else self.start_ms,
            last_update_ms=wall_ms,
            client_version=client_version,
        )

    def completed(self, wall_ms: int) -> TransactionMetadata:
        """COMPLETE_*: all markers are written."""
        producer_id, epoch = self.producer_id, self.producer_epoch
        if self.client_version >= VERSION_2 and self.next_producer_id != NO_PRODUCER_ID:
            # The producer goes from epoch 32766 to epoch 0 of the new id. Only the markers have 32767.
            producer_id, epoch = self.next_producer_id, 0
        return self._to(
            State.COMPLETE_COMMIT if self.state == State.PREPARE_COMMIT else State.COMPLETE_ABORT,
            producer_id=producer_id,
            producer_epoch=epoch,
            next_producer_id=NO_PRODUCER_ID,
            partitions=frozenset(),
            last_update_ms=wall_ms,
        )

    def _to(self, state: State, **changes: Any) -> TransactionMetadata:
        if state not in TRANSITIONS[self.state]:
            raise AssertionError(f"{self.transactional_id}: {self.state.name} cannot become {state.name}")
        # Three times faster than dataclasses.replace.
        other = TransactionMetadata(*_fields(self))
        changes["state"], changes["previous_producer_id"] = state, self.producer_id
        for name, value in changes.items():
            object.__setattr__(other, name, value)
        return other

    # Record

    def encoded(self) -> bytes:
        """A TransactionLogValue."""
        return transaction_value(
            self.producer_id,
            self.previous_producer_id,
            self.next_producer_id,
            self.producer_epoch,
            self.timeout_ms,
            self.state,
            None if self.state == State.EMPTY else _by_topic(self.partitions),
            self.last_update_ms,
            self.start_ms,
            self.client_version,
        )


_fields = attrgetter(*(each.name for each in fields(TransactionMetadata)))


def from_value(transactional_id: str, value: TransactionLogValue) -> TransactionMetadata:
    try:
        state = State(value.transaction_status)
    except ValueError:
        raise MalformedInput(f"unknown transaction state {value.transaction_status} of {transactional_id}") from None
    return TransactionMetadata(
        transactional_id,
        value.producer_id,
        value.producer_epoch,
        value.transaction_timeout_ms,
        state,
        frozenset(
            TopicPartition(entry.topic, partition)
            for entry in value.transaction_partitions or ()
            for partition in entry.partition_ids
        ),
        value.transaction_start_timestamp_ms,
        value.transaction_last_update_timestamp_ms,
        value.client_transaction_version,
        value.previous_producer_id,
        value.next_producer_id,
    )


def is_exhausted(producer_epoch: int) -> bool:
    return producer_epoch >= EPOCH_MAX - 1


def _by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        by_topic.setdefault(topic, []).append(partition)
    return by_topic
