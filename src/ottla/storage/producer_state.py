"""The producer state of one partition: detects duplicates and gaps, and knows the open transactions.

Owns the epoch and the last five batches of each producer, and decides by Kafka's rules whether a batch may be appended (KIP-98,
KIP-360). Never touches a file: `snapshot` and `txn_index` do.

1. `check` and `check_marker` change nothing. The state changes in `wrote` and `wrote_marker`, after the write: it is always the
   state of the records in the log, and replaying the log gives the same.
2. A batch is a duplicate only if it is known to be in the log.
3. The first unstable offset is the start of the first transaction that is open or whose marker is not below the high watermark.
4. The number of producers is bounded. Beyond the limit those with the oldest last batch expire first.
5. If the first write of a transaction to this partition fails, its sequence is remembered: later sequences of that producer are
   refused until it is written, although an unknown producer may otherwise start with any sequence.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import BATCHES_KEPT, CONTROL_BIT, SEQUENCE_MAX, TRANSACTIONAL_BIT, BatchInfo
from ottla.storage.config import INT64_MAX
from ottla.types import NO_OFFSET, NO_PRODUCER_EPOCH, NO_SEQUENCE, NO_TIMESTAMP, TopicPartition

PRODUCERS_MAX: Final = 100_000
EPOCH_MAX: Final = 0x7FFF
NO_COORDINATOR_EPOCH: Final = -1


class Written(NamedTuple):
    """Sequences and offsets of a batch in the log."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int
    """The max timestamp of the batch: with LogAppendTime the time of the append."""


def written(batch: BatchInfo) -> Written:
    offset = batch.base_offset
    delta = batch.last_offset_delta
    first = batch.base_sequence
    last = (first + delta) & SEQUENCE_MAX if first >= 0 else NO_SEQUENCE
    # `Written(...)` would cost more than the rest of the bookkeeping of an append.
    return tuple.__new__(Written, (first, last, offset, offset + delta, batch.max_timestamp))


class Attempt(NamedTuple):
    """The first write of a transaction to this partition, while it is not in the log."""

    epoch: int
    lowest_sequence: int
    bumps_epochs: bool


class Producer:
    def __init__(self, producer_id: int, epoch: int = NO_PRODUCER_EPOCH) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.coordinator_epoch = NO_COORDINATOR_EPOCH
        self.last_timestamp = NO_TIMESTAMP
        self.txn_first_offset = NO_OFFSET
        """The first offset of the open transaction; NO_OFFSET: none is open."""
        self.batches: deque[Written] = deque(maxlen=BATCHES_KEPT)
        """The last batches of this epoch, oldest first."""
        self.next_sequence = 0
        self.known_sequences = 0
        """How many sequences directly before `next_sequence` are known to be in the log."""

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    @property
    def last_data_offset(self) -> int:
        return self.batches[-1].last_offset if self.batches else NO_OFFSET

    def begin_epoch(self, epoch: int) -> None:
        if epoch != self.epoch:
            self.epoch = epoch
            self.batches.clear()
            self.next_sequence = 0
            self.known_sequences = 0

    def add(self, written: Written) -> None:
        first_sequence, last_sequence, first_offset, last_offset, self.last_timestamp = written
        count = last_offset - first_offset + 1
        if first_sequence == self.next_sequence:
            count += self.known_sequences
        self.known_sequences = count if count < SEQUENCE_MAX else SEQUENCE_MAX
        self.batches.append(written)
        self.next_sequence = (last_sequence + 1) & SEQUENCE_MAX

    def recall(self, epoch: int, earlier: Written) -> bool:
        """Add a batch found in the log before the known ones. False: earlier batches are not needed."""
        first = self.batches[0]
        if earlier.last_offset >= first.first_offset:
            if earlier.last_offset == first.last_offset:
                self.batches[0] = earlier  # a snapshot has the last timestamp of the producer, not of the batch
            return True
        if epoch != self.epoch or len(self.batches) == BATCHES_KEPT or earlier.first_sequence < 0:
            return False
        if (earlier.last_sequence + 1) & SEQUENCE_MAX != first.first_sequence:
            return False
        self.batches.appendleft(earlier)
        self.known_sequences += earlier.last_offset - earlier.first_offset + 1
        return True

    def facts(self) -> tuple[object, ...]:
        """The state as a tuple, for comparison."""
        return (
            self.producer_id,
            self.epoch,
            self.coordinator_epoch,
            self.last_timestamp,
            self.txn_first_offset,
            tuple(self.batches),
        )

    def __repr__(self) -> str:
        return f"Producer{self.facts()}"


@dataclass(frozen=True, slots=True)
class CompletedTxn:
    """A transaction with records in this partition that has ended."""

    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    aborted: bool
    last_stable_offset: int
    """The last stable offset after this transaction, ignoring replication."""


class ProducerStates:
    def __init__(self, topic_partition: TopicPartition, producers_max: int = PRODUCERS_MAX) -> None:
        self._topic_partition = topic_partition
        self._producers: dict[int, Producer] = {}
        self._ongoing: dict[int, int] = {}
        """Producer id by first offset of its open transaction, ascending."""
        self._unreplicated: list[tuple[int, int]] = []
        """(first offset, marker offset) of transactions that have ended, with the marker not yet below the high watermark."""
        self._attempts: dict[int, Attempt] = {}
        """By producer id. Bounded; not derived from the log."""
        self.first_unstable_offset = INT64_MAX
        self.producers_max = producers_max

    # --- query

    def __len__(self) -> int:
        return len(self._producers)

    def __iter__(self) -> Iterator[Producer]:
        return iter(self._producers.values())

    def get(self, producer_id: int) -> Producer | None:
        return self._producers.get(producer_id)

    @property
    def is_empty(self) -> bool:
        return not self._producers and not self._unreplicated

    def oldest_open_timestamp(self) -> int:
        """Of the open transactions, the earliest time of a last batch; NO_TIMESTAMP if none is open."""
        if not self._ongoing:
            return NO_TIMESTAMP
        return min([self._producers[producer_id].last_timestamp for producer_id in self._ongoing.values()])

    def has_ongoing_transaction(self, producer_id: int, epoch: int) -> bool:
        """Whether the producer has an open transaction in this epoch. With transaction version 2 the next one has the next epoch,
        and may start before the marker of the previous one is written (T11)."""
        producer = self._producers.get(producer_id)
        return producer is not None and producer.txn_first_offset >= 0 and producer.epoch == epoch

    def facts(self) -> tuple[object, ...]:
        """The whole state, for comparison."""
        return (
            sorted(producer.facts() for producer in self._producers.values()),
            list(self._ongoing.items()),
            self.first_unstable_offset,
        )

    # --- before a write

    def attempt(self, producer_id: int, epoch: int, sequence: int, *, bumps_epochs: bool = False) -> None:
        """A producer starts a transaction in this partition; the transaction coordinator is about to verify it."""
        producer = self._producers.get(producer_id)
        if producer is not None and epoch < producer.epoch:
            return  # a fenced instance, which will be refused
        earlier = self._attempts.get(producer_id)
        if earlier is None:
            if len(self._attempts) >= self.producers_max:
                del self._attempts[next(iter(self._attempts))]
        elif epoch < earlier.epoch or (epoch == earlier.epoch and sequence >= earlier.lowest_sequence):
            return
        else:
            bumps_epochs = earlier.bumps_epochs
        self._attempts[producer_id] = Attempt(epoch, sequence, bumps_epochs)

    def check(self, batch: BatchInfo, *, verified: bool = False, bumps_epochs: bool = False) -> Written | None:
        """Raise KafkaError if a client's batch may not be appended. Returns the batch in the log if it is a duplicate.

        `verified`: the coordinator confirmed that the transaction includes this partition, which its first batch requires.
        `bumps_epochs`: transaction version 2, where every transaction has its own epoch and starts with sequence 0.
        """
        producer = self._producers.get(batch.producer_id)
        if (
            producer is not None
            and batch.base_sequence == producer.next_sequence
            and batch.producer_epoch == producer.epoch
            and producer.txn_first_offset < 0
            and not batch.attributes & TRANSACTIONAL_BIT
            and not self._attempts
        ):
            return None
        return self._check_closely(producer, batch, verified, bumps_epochs)

    def _check_closely(self, producer: Producer | None, batch: BatchInfo, verified: bool, bumps_epochs: bool) -> Written | None:
        first, last = batch.base_sequence, batch.last_sequence
        if producer is not None and producer.epoch == batch.producer_epoch:
            for written in producer.batches:
                if written.first_sequence == first and written.last_sequence == last:
                    return written
        ongoing = producer is not None and producer.txn_first_offset >= 0
        if batch.is_transactional and not ongoing and not verified:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE, f"producer {batch.producer_id} has no open transaction in {self._topic_partition}"
            )
        if producer is not None and producer.epoch != NO_PRODUCER_EPOCH:
            self._check_epoch(producer, batch.producer_epoch)
        attempt = self._attempts.get(batch.producer_id)
        if first != 0 and (producer is None or not producer.batches):
            # A transaction that started with version 2 continues with it.
            began = attempt is not None and attempt.bumps_epochs
            if began or (bumps_epochs and batch.is_transactional):
                raise self._out_of_order(batch, 0)
        if attempt is not None and first > attempt.lowest_sequence:
            raise self._out_of_order(batch, attempt.lowest_sequence)
        if producer is None or producer.epoch == NO_PRODUCER_EPOCH:
            return None  # unknown or expired: it may start with any sequence (KIP-360)
        if batch.producer_epoch > producer.epoch:
            if first != 0:
                raise self._out_of_order(batch, 0)
        elif first != producer.next_sequence:
            behind = (producer.next_sequence - first) & SEQUENCE_MAX
            if self._kept_sequences(producer) + batch.record_count <= behind <= producer.known_sequences:
                raise KafkaError(
                    ErrorCode.DUPLICATE_SEQUENCE_NUMBER,
                    f"sequences {first} to {last} of producer {batch.producer_id} were appended to {self._topic_partition} "
                    f"before the last {BATCHES_KEPT} batches",
                )
            raise self._out_of_order(batch, producer.next_sequence)
        if ongoing and not batch.is_transactional:
            raise KafkaError(
                ErrorCode.INVALID_TXN_STATE,
                f"a batch of producer {batch.producer_id} is outside of its open transaction in {self._topic_partition}",
            )
        return None

    def _kept_sequences(self, producer: Producer) -> int:
        """The number of sequences in the last batches, for which a duplicate is known exactly."""
        return (producer.next_sequence - producer.batches[0].first_sequence) & SEQUENCE_MAX if producer.batches else 0

    def check_coordinator(self, batch: BatchInfo) -> None:
        """As `check`, for offset commits that a group coordinator writes with a client's producer id, without sequences."""
        producer = self._producers.get(batch.producer_id)
        if producer is not None:
            self._check_epoch(producer, batch.producer_epoch)

    def check_marker(self, producer_id: int, epoch: int, coordinator_epoch: int, transaction_version: int) -> None:
        """Raise KafkaError if a coordinator may not end a producer's transaction. The producer need not be known."""
        producer = self._producers.get(producer_id)
        if producer is None:
            return
        if transaction_version >= 2 and epoch == producer.epoch:
            # The epoch of the transaction is one less (KIP-890): this is a delayed or repeated marker.
            if producer.txn_first_offset >= 0 and epoch != EPOCH_MAX:
                raise KafkaError(
                    ErrorCode.INVALID_PRODUCER_EPOCH,
                    f"epoch {epoch} of producer {producer_id} belongs to a later transaction",
                )
        else:
            self._check_epoch(producer, epoch)
        if coordinator_epoch < producer.coordinator_epoch:
            raise KafkaError(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {coordinator_epoch} of producer {producer_id} in {self._topic_partition} is fenced "
                f"by {producer.coordinator_epoch}",
            )

    def _check_epoch(self, producer: Producer, epoch: int) -> None:
        if epoch < producer.epoch:
            raise KafkaError(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {epoch} of producer {producer.producer_id} in {self._topic_partition} is fenced by {producer.epoch}",
            )

    def _out_of_order(self, batch: BatchInfo, expected: int) -> KafkaError:
        return KafkaError(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {batch.producer_id} in epoch {batch.producer_epoch} is at sequence {expected} of {self._topic_partition}, "
            f"not at {batch.base_sequence}",
        )

    # --- after a write

    def wrote(self, batch: BatchInfo) -> None:
        """A data batch was written. Markers go to `wrote_marker`; other control batches have no producer."""
        assert not batch.attributes & CONTROL_BIT
        producer = self._producers.get(batch.producer_id)
        if producer is None:
            producer = self._new(batch.producer_id)
        if producer.epoch != batch.producer_epoch:
            producer.begin_epoch(batch.producer_epoch)
        offset = batch.base_offset
        producer.add(written(batch))
        if self._attempts and batch.attributes & TRANSACTIONAL_BIT:
            self._attempts.pop(batch.producer_id, None)
        if batch.attributes & TRANSACTIONAL_BIT and producer.txn_first_offset < 0:
            producer.txn_first_offset = offset
            self._ongoing[offset] = producer.producer_id
            if offset < self.first_unstable_offset:
                self.first_unstable_offset = offset

    def wrote_marker(
        self, producer_id: int, epoch: int, coordinator_epoch: int, offset: int, timestamp: int, *, aborted: bool
    ) -> CompletedTxn | None:
        """A marker was written. None: the producer had no open transaction in this partition."""
        producer = self._producers.get(producer_id)
        if producer is None:
            producer = self._new(producer_id)
        first_offset = producer.txn_first_offset
        producer.begin_epoch(epoch)
        producer.coordinator_epoch = coordinator_epoch
        producer.last_timestamp = timestamp
        producer.txn_first_offset = NO_OFFSET
        attempt = self._attempts.get(producer_id)
        if attempt is not None and not (attempt.bumps_epochs and attempt.epoch == epoch):
            # Otherwise the attempt belongs to the next transaction, whose producer did not wait for this marker.
            del self._attempts[producer_id]
        if first_offset < 0:
            return None
        self._ongoing.pop(first_offset, None)
        self._unreplicated.append((first_offset, offset))
        self._find_first_unstable()
        stable = next(iter(self._ongoing), offset + 1)
        return CompletedTxn(producer_id, first_offset, offset, aborted, stable)

    def _new(self, producer_id: int) -> Producer:
        if len(self._producers) >= self.producers_max:
            self._make_room()
        producer = self._producers[producer_id] = Producer(producer_id)
        return producer

    def _make_room(self) -> None:
        idle = [producer for producer in self._producers.values() if producer.txn_first_offset < 0]
        idle.sort(key=lambda producer: producer.last_data_offset)
        for producer in idle[: max(self.producers_max // 8, 1)]:
            del self._producers[producer.producer_id]

    def replicated(self, high_watermark: int) -> None:
        """The high watermark advanced: markers below it are committed."""
        if self._unreplicated:
            self._unreplicated = [txn for txn in self._unreplicated if txn[1] >= high_watermark]
            self._find_first_unstable()

    def _find_first_unstable(self) -> None:
        first = next(iter(self._ongoing), INT64_MAX)
        for txn in self._unreplicated:
            if txn[0] < first:
                first = txn[0]
        self.first_unstable_offset = first

    # --- expiry and restore

    def expire(self, now_ms: int, expiration_ms: int) -> int:
        """Remove producers that wrote nothing for `expiration_ms` and have no open transaction. Returns how many."""
        gone = [
            producer.producer_id
            for producer in self._producers.values()
            if producer.txn_first_offset < 0 and now_ms - producer.last_timestamp >= expiration_ms
        ]
        for producer_id in gone:
            del self._producers[producer_id]
        return len(gone)

    def clear(self) -> None:
        self._producers.clear()
        self._ongoing.clear()
        self._unreplicated.clear()
        self._attempts.clear()
        self.first_unstable_offset = INT64_MAX

    def restore(self, producers: Iterable[Producer]) -> None:
        """Replace the state with that of a snapshot."""
        self.clear()
        for producer in producers:
            self._producers[producer.producer_id] = producer
        open_ones = [producer for producer in self._producers.values() if producer.txn_first_offset >= 0]
        open_ones.sort(key=lambda producer: producer.txn_first_offset)
        self._ongoing = {producer.txn_first_offset: producer.producer_id for producer in open_ones}
        self._find_first_unstable()
