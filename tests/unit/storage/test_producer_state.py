"""What a partition knows of its producers, rule by rule (I01-I03, I06, T12)."""

from __future__ import annotations

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import BATCHES_KEPT, SEQUENCE_MAX
from ottla.storage.config import INT64_MAX
from ottla.storage.producer_state import ProducerStates, Written
from ottla.types import TopicPartition
from tests.kit.present import present
from tests.kit.producer import data_batch, refused


class Partition:
    """Offsets and a state; no log."""

    def __init__(self, producers_max: int = 100) -> None:
        self.states = ProducerStates(TopicPartition("t", 0), producers_max)
        self.end = 0

    def send(self, sequence: int, count: int = 1, *, producer: int = 7, epoch: int = 0, **options: bool) -> Written | None:
        """What a client sends. None: appended; otherwise where it was before."""
        transactional = options.pop("transactional", False)
        batch = data_batch(producer, epoch, sequence, count, transactional=transactional, timestamp=1000 + self.end)
        known = self.states.check(batch, **options)
        if known is None:
            batch.base_offset = self.end
            self.end += count
            self.states.wrote(batch)
        return known

    def end_txn(self, *, abort: bool = False, epoch: int = 0, coordinator_epoch: int = 0, version: int = 0) -> object:
        self.states.check_marker(7, epoch, coordinator_epoch, version)
        offset, self.end = self.end, self.end + 1
        return self.states.wrote_marker(7, epoch, coordinator_epoch, offset, 5000, aborted=abort)


def test_i01_each_of_the_last_five_batches_is_answered_with_its_own_offset_and_time() -> None:
    partition = Partition()
    for first in range(0, 21, 3):
        assert partition.send(first, 3) is None
    end = partition.end
    for first in range(6, 21, 3):
        assert partition.send(first, 3) == Written(first, first + 2, first, first + 2, 1000 + first)
    assert refused(partition.send, 3, 3) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert refused(partition.send, 0, 6) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER
    assert partition.end == end


def test_i01_other_bounds_over_the_last_batches_are_no_duplicate() -> None:
    """Of the last five a duplicate is known exactly, and what is not one cannot follow."""
    partition = Partition()
    partition.send(0, 3)
    partition.send(3, 3)
    for sequence, count in ((0, 6), (4, 2), (1, 1), (4, 3)):
        assert refused(partition.send, sequence, count) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for first in range(6, 21, 3):
        partition.send(first, 3)
    assert refused(partition.send, 4, 2) == ErrorCode.DUPLICATE_SEQUENCE_NUMBER, "before the last five, in other bounds"
    assert refused(partition.send, 4, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "one of them is of the last five"


def test_i01_what_may_never_have_been_appended_is_not_called_a_duplicate() -> None:
    """A producer nobody knew began with sequence 10: where its 0 to 9 are, if anywhere, nobody can say."""
    partition = Partition()
    partition.send(10, 5)
    assert refused(partition.send, 5, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(partition.send, 8, 4) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(10, 5) is not None


@pytest.mark.parametrize("sequence", [2, 3, 1000, SEQUENCE_MAX])
def test_i02_a_gap_is_refused(sequence: int) -> None:
    partition = Partition()
    partition.send(0)
    assert refused(partition.send, sequence) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(1) is None


def test_i02_a_new_epoch_begins_at_zero_and_forgets_the_batches_of_the_old() -> None:
    partition = Partition()
    partition.send(0, 4)
    assert refused(partition.send, 4, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(4) is None, "the refused one left no trace"
    assert partition.send(0, 4, epoch=1) is None
    assert partition.send(0, 4, epoch=1) is not None
    assert [batch.first_offset for batch in present(partition.states.get(7)).batches] == [5]


@pytest.mark.parametrize("count", [1, 2, 5, 1000])
def test_i02_sequences_wrap_from_the_largest_int32_to_zero(count: int) -> None:
    partition = Partition()
    first = SEQUENCE_MAX - count + 1
    assert partition.send(first, count) is None
    assert partition.send(0, 3) is None
    assert partition.send(first, count) is not None
    assert partition.send(0, 3) is not None


def test_i02_a_batch_may_wrap_inside() -> None:
    partition = Partition()
    assert partition.send(SEQUENCE_MAX - 1, 5) is None
    assert present(partition.states.get(7)).next_sequence == 3
    assert partition.send(SEQUENCE_MAX - 1, 5) is not None
    assert partition.send(3) is None


def test_i03_a_lower_epoch_is_fenced() -> None:
    partition = Partition()
    partition.send(0, epoch=3)
    for epoch in (0, 2):
        assert refused(partition.send, 0, epoch=epoch) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.send(1, epoch=3) is None


def test_i06_who_is_not_known_may_begin_anywhere() -> None:
    partition = Partition()
    assert partition.send(0, epoch=4) is None
    partition.states.expire(now_ms=1000 + 86_400_000, expiration_ms=86_400_000)
    assert len(partition.states) == 0
    assert partition.send(17, epoch=4) is None
    assert partition.send(18, epoch=4) is None


def test_i06_only_the_silent_expire_and_none_with_an_open_transaction() -> None:
    partition = Partition()
    partition.send(0, producer=1)
    partition.send(0, producer=2, transactional=True, verified=True)
    partition.send(0, producer=3)
    assert partition.states.expire(now_ms=1001 + 50, expiration_ms=50) == 1
    assert {producer.producer_id for producer in partition.states} == {2, 3}, "2 is as silent, and its transaction open"


def test_the_number_of_producers_is_bounded_and_the_oldest_go_first() -> None:
    partition = Partition(producers_max=16)
    partition.send(0, producer=1000, transactional=True, verified=True)
    for producer in range(100):
        partition.send(0, producer=producer)
    assert len(partition.states) <= 16
    known = {producer.producer_id for producer in partition.states}
    assert 1000 in known, "it has a transaction open"
    assert set(range(90, 100)) <= known


def test_no_more_than_five_batches_are_kept() -> None:
    partition = Partition()
    for sequence in range(100):
        partition.send(sequence)
    assert len(present(partition.states.get(7)).batches) == BATCHES_KEPT


# --- transactions


def test_t10_the_first_batch_of_a_transaction_must_be_verified() -> None:
    partition = Partition()
    assert refused(partition.send, 0, transactional=True) == ErrorCode.INVALID_TXN_STATE
    assert partition.send(0, transactional=True, verified=True) is None
    assert partition.send(1, transactional=True) is None, "it is open now"
    partition.end_txn()
    assert refused(partition.send, 2, transactional=True) == ErrorCode.INVALID_TXN_STATE
    assert partition.send(1, transactional=True) is not None, "a duplicate is one, whatever became of the transaction"


def test_t10_what_was_sent_behind_a_refused_first_write_is_not_taken_before_it() -> None:
    """Five may be in flight: the coordinator could not be asked about the first, and could be about the second."""
    partition = Partition()
    states = partition.states
    options = {"transactional": True, "verified": True}
    states.attempt(7, 0, 4)
    states.attempt(7, 0, 6)
    assert refused(partition.send, 6, **options) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(6, producer=8, **options) is None, "another's"
    assert partition.send(4, 2, **options) is None, "nobody knows this producer: any sequence may be the first"
    assert partition.send(6, **options) is None
    partition.end_txn()
    assert partition.send(7, **options) is None, "nothing of it is left"


def test_t10_a_marker_ends_what_was_tried_in_its_transaction() -> None:
    partition = Partition()
    options = {"transactional": True, "verified": True}
    partition.states.attempt(7, 0, 0)
    partition.end_txn()
    partition.states.attempt(7, 1, 3, bumps_epochs=True)
    partition.end_txn(epoch=1, version=2)  # of the transaction before, whose end the next one has overtaken
    assert refused(partition.send, 5, epoch=1, **options) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    partition.states.attempt(7, 2, 0, bumps_epochs=True)
    assert refused(partition.send, 1, epoch=2, **options) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(0, epoch=2, **options) is None


def test_t10_what_a_former_instance_tries_is_not_in_the_way_of_the_present_one() -> None:
    partition = Partition()
    options = {"transactional": True, "verified": True}
    partition.send(0, 3, epoch=1, **options)
    partition.states.attempt(7, 0, 0)
    assert partition.send(3, epoch=1, **options) is None


def test_what_was_tried_is_bounded() -> None:
    partition = Partition(producers_max=3)
    for producer in range(10, 15):
        partition.states.attempt(producer, 0, 0)
    assert partition.send(5, producer=10, transactional=True, verified=True) is None, "forgotten"
    assert refused(partition.send, 5, producer=14, transactional=True, verified=True) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_batch_outside_of_the_open_transaction_is_refused() -> None:
    partition = Partition()
    partition.send(0, transactional=True, verified=True)
    assert refused(partition.send, 1) == ErrorCode.INVALID_TXN_STATE
    partition.end_txn()
    assert partition.send(1) is None


def test_t01_the_first_unstable_offset_is_that_of_the_first_open_transaction() -> None:
    partition = Partition()
    states = partition.states
    assert states.first_unstable_offset == INT64_MAX
    partition.send(0, 3)
    partition.send(3, 2, transactional=True, verified=True)
    partition.send(0, 2, producer=8, transactional=True, verified=True)
    assert states.first_unstable_offset == 3
    completed = partition.end_txn(abort=True)
    assert (completed.first_offset, completed.last_offset, completed.last_stable_offset) == (3, 7, 5)  # type: ignore[attr-defined]
    assert states.first_unstable_offset == 3, "the marker is not below the high watermark yet"
    states.replicated(7)
    assert states.first_unstable_offset == 3
    states.replicated(8)
    assert states.first_unstable_offset == 5
    states.wrote_marker(8, 0, 0, 8, 0, aborted=False)
    states.replicated(9)
    assert states.first_unstable_offset == INT64_MAX


def test_a_marker_without_records_ends_nothing_and_is_remembered() -> None:
    partition = Partition()
    assert partition.end_txn(epoch=3, coordinator_epoch=5) is None
    assert refused(partition.send, 0, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(partition.end_txn, epoch=3, coordinator_epoch=4) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


def test_t12_an_older_coordinator_or_epoch_ends_nothing() -> None:
    partition = Partition()
    partition.send(0, epoch=2, transactional=True, verified=True)
    partition.end_txn(epoch=2, coordinator_epoch=9)
    partition.send(1, epoch=2, transactional=True, verified=True)
    assert refused(partition.end_txn, epoch=2, coordinator_epoch=8) == ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert refused(partition.end_txn, epoch=1, coordinator_epoch=9) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.end_txn(epoch=2, coordinator_epoch=9) is not None


def test_t11_with_version_2_a_late_marker_does_not_end_the_next_transaction() -> None:
    """The marker of a transaction carries the epoch after it; once the next has begun with that epoch, it comes too late."""
    partition = Partition()
    partition.send(0, transactional=True, verified=True, bumps_epochs=True)
    assert partition.end_txn(epoch=1, version=2) is not None
    assert partition.end_txn(epoch=1, version=2) is None, "the same again changes nothing"
    partition.send(0, epoch=1, transactional=True, verified=True, bumps_epochs=True)
    assert refused(partition.end_txn, epoch=1, version=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert partition.states.has_ongoing_transaction(7, 1)
    assert not partition.states.has_ongoing_transaction(7, 2)
    assert refused(partition.send, 1, transactional=True) == ErrorCode.INVALID_PRODUCER_EPOCH, "of the first transaction"


def test_t11_with_version_2_a_transaction_begins_at_sequence_zero() -> None:
    partition = Partition()
    options = {"transactional": True, "verified": True, "bumps_epochs": True}
    assert refused(partition.send, 3, **options) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert partition.send(0, 3, **options) is None
    assert partition.send(3, **options) is None


def test_t11_who_began_with_version_2_has_to_go_on_so() -> None:
    """Kafka keeps the version of the first attempt of a producer that it does not know."""
    partition = Partition()
    partition.states.attempt(7, 0, 3, bumps_epochs=True)
    options = {"transactional": True, "verified": True}
    assert refused(partition.send, 3, **options) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(partition.send, 3) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, "not in a transaction either"
    assert partition.send(0, **options) is None


def test_a_coordinators_own_records_have_no_sequence_but_an_epoch() -> None:
    states = ProducerStates(TopicPartition("t", 0))
    batch = data_batch(7, 4, -1, 1, transactional=True)
    states.check_coordinator(batch)
    states.wrote(batch)
    assert states.first_unstable_offset == 0
    states.check_coordinator(batch)
    with pytest.raises(KafkaError) as refusal:
        states.check_coordinator(data_batch(7, 3, -1, 1, transactional=True))
    assert refusal.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_the_oldest_open_transaction_is_known_by_its_last_batch() -> None:
    partition = Partition()
    assert partition.states.oldest_open_timestamp() == -1
    partition.send(0, producer=8)
    assert partition.states.oldest_open_timestamp() == -1, "it is in no transaction"
    partition.send(0, transactional=True, verified=True)
    partition.send(0, producer=9, transactional=True, verified=True)
    assert partition.states.oldest_open_timestamp() == 1001
    partition.end_txn()
    assert partition.states.oldest_open_timestamp() == 1002
