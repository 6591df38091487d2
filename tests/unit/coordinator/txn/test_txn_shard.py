"""What the transaction coordinator decides, case by case (T03-T07, T10, T11)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.coordinator.shard import CoordinatorRecord
from ottla.coordinator.txn.transaction_metadata import STATE_BY_TITLE, TRANSITIONS, State
from ottla.errors import ErrorCode, MalformedInput
from ottla.protocol.internal.txn_records import (
    PartitionsSchema,
    TransactionLogValue,
    decode_record,
    encode_key,
    encode_value,
    transaction_value,
)
from ottla.types import TopicPartition

NONE = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
INVALID_STATE = ErrorCode.INVALID_TXN_STATE
WRONG_PRODUCER = ErrorCode.INVALID_PRODUCER_ID_MAPPING
LAST_EPOCH = 32766

P0, P1 = TopicPartition("p", 0), TopicPartition("p", 1)


def test_kafkas_numbers_and_names_of_states() -> None:
    assert [(state.value, state.title) for state in State] == [
        (0, "Empty"),
        (1, "Ongoing"),
        (2, "PrepareCommit"),
        (3, "PrepareAbort"),
        (4, "CompleteCommit"),
        (5, "CompleteAbort"),
        (6, "Dead"),
        (7, "PrepareEpochFence"),
    ]
    assert STATE_BY_TITLE["CompleteAbort"] is State.COMPLETE_ABORT
    assert set(TRANSITIONS) == set(State)


# T03, T04: who a producer is


def test_t03_the_same_id_again_raises_the_epoch(host: Any) -> None:
    assert host.init() == (1000, 0)
    assert host.init() == (1000, 1)
    assert host.init(name="other") == (1001, 0)
    host.reload()
    assert host.init() == (1000, 2)


def test_t03_an_open_transaction_is_aborted_first_and_the_former_producer_fenced(host: Any) -> None:
    old = host.init()
    assert host.add(old, 0, 1) == NONE
    host.auto_markers = False
    assert host.init() == CONCURRENT
    assert host.state == State.PREPARE_ABORT
    assert host.init() == CONCURRENT, "until the markers are written"
    assert host.end(old) == FENCED
    host.write_markers()
    # Raised once to abort, and once more for the new producer.
    assert host.written == [(P0, 1000, 1, False), (P1, 1000, 1, False)]
    assert host.init() == (1000, 2)
    for code in (host.add(old, 0), host.end(old), host.end(old, commit=False), host.verify(old, 0)):
        assert code == FENCED
    assert host.init(old) == FENCED


def test_t04_kip_360_raises_the_epoch_of_a_producer_that_goes_on(host: Any) -> None:
    producer = host.init()
    assert host.init(producer) == (1000, 1)
    assert host.init(producer) == (1000, 1), "the answer was lost: the same again"
    assert host.init((1000, 1)) == (1000, 2)
    assert host.init(producer) == FENCED, "neither this epoch nor the one before"
    assert host.init((999, 2)) == FENCED
    assert host.init() == (1000, 3)
    assert host.init((1000, 2)) == FENCED, "another producer came between"


def test_t04_a_retry_across_a_failover_is_fenced_as_in_kafka(host: Any) -> None:
    producer = host.init()
    assert host.init(producer) == (1000, 1)
    host.reload()
    assert host.init(producer) == FENCED
    assert host.init((1000, 1)) == (1000, 2)


def test_t04_a_producer_whose_id_is_forgotten_begins_anew(host: Any) -> None:
    assert host.init((77, 5)) == (1000, 0)


def test_t04_used_up_epochs_bring_another_producer_id(host: Any) -> None:
    host.init()
    host.put(replace(host.transaction(), producer_epoch=LAST_EPOCH))
    assert host.init((1000, LAST_EPOCH)) == (1001, 0)
    assert host.init((1000, LAST_EPOCH)) == (1001, 0), "the answer was lost: the same again"
    assert host.init((1000, LAST_EPOCH - 1)) == FENCED
    assert host.init() == (1001, 1)


def test_t04_used_up_epochs_and_a_fresh_producer(host: Any) -> None:
    host.init()
    host.put(replace(host.transaction(), producer_epoch=LAST_EPOCH))
    assert host.init((1000, 3)) == FENCED
    assert host.init() == (1001, 0)
    assert host.init((1000, LAST_EPOCH)) == FENCED, "that one was another producer"


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_t05_a_timeout_beyond_the_limit_is_refused(host: Any, timeout_ms: int) -> None:
    assert host.init(timeout_ms=timeout_ms) == ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert not host.log
    assert host.init(timeout_ms=900_000) == (1000, 0)


def test_an_empty_id_is_refused(host: Any) -> None:
    assert host.init(name="") == ErrorCode.INVALID_REQUEST
    assert host.add((1, 0), 0, name="") == ErrorCode.INVALID_REQUEST
    assert host.end((1, 0), name="") == ErrorCode.INVALID_REQUEST


# What a transaction touches


def test_partitions_are_added_once(host: Any) -> None:
    producer = host.init()
    assert host.add(producer, 0) == NONE
    host.now_ms += 5
    started = host.transaction().start_ms
    assert host.add(producer, 1, 2) == NONE
    count = len(host.log)
    assert host.add(producer, 0, 2) == NONE
    assert len(host.log) == count, "they are part of it already"
    assert host.transaction().partitions == {P0, P1, TopicPartition("p", 2)}
    assert host.transaction().start_ms == started


def test_who_may_add(host: Any) -> None:
    assert host.add((1, 0), 0) == WRONG_PRODUCER
    producer = host.init()
    assert host.add((999, 0), 0) == WRONG_PRODUCER
    assert host.add((1000, 1), 0) == FENCED
    assert host.add(producer, 0) == NONE
    host.auto_markers = False
    assert host.end(producer) == NONE
    assert host.add(producer, 1) == CONCURRENT
    assert host.verify(producer, 0) == CONCURRENT
    host.write_markers()
    assert host.add(producer, 1) == NONE
    assert host.transaction().partitions == {P1}


def test_t10_verifying_finds_what_was_not_added(host: Any) -> None:
    assert host.verify((1000, 0), 0) == WRONG_PRODUCER
    producer = host.init()
    host.add(producer, 0)
    assert host.verify(producer, 0, 1) == [NONE, ErrorCode.TRANSACTION_ABORTABLE]
    assert host.verify((999, 0), 0) == WRONG_PRODUCER
    host.end(producer)
    assert host.verify(producer, 0) == [ErrorCode.TRANSACTION_ABORTABLE], "the next transaction has none yet"


# T07: how it ends, before KIP-890


def test_t07_end_txn_before_kip_890(host: Any) -> None:
    assert host.end((1, 0)) == WRONG_PRODUCER
    producer = host.init()
    for commit in (True, False):
        assert host.end(producer, commit=commit) == INVALID_STATE, "there is nothing to end"
        host.add(producer, 0)
        host.auto_markers = False
        assert host.end((1000, producer[1] + 1), commit=commit) == FENCED
        assert host.end((5, 0), commit=commit) == WRONG_PRODUCER
        assert host.end(producer, commit=commit) == NONE
        assert host.end(producer, commit=commit) == CONCURRENT
        assert host.end(producer, commit=not commit) == CONCURRENT
        assert host.end((1000, producer[1] + 1), commit=commit) == FENCED
        assert host.end((5, 0), commit=commit) == WRONG_PRODUCER
        host.auto_markers = True
        host.write_markers()
        assert host.end(producer, commit=commit) == NONE, "the same again"
        assert host.end(producer, commit=not commit) == INVALID_STATE
        assert host.written.pop() == (P0, 1000, producer[1], commit)
        host.init(producer)
        producer = (1000, producer[1] + 1)


def test_no_epoch_is_raised_before_kip_890(host: Any) -> None:
    producer = host.init()
    for _ in range(3):
        host.add(producer, 0)
        assert host.end(producer) == NONE
    assert host.transaction().producer_epoch == 0
    assert host.transaction().client_version == 0


# T11: transaction version 2


def test_t11_every_end_raises_the_epoch(host: Any) -> None:
    producer = host.init()
    host.add(producer, 0, version=2)
    assert host.end(producer, version=2) == (1000, 1)
    assert host.written == [(P0, 1000, 1, True)]
    host.add((1000, 1), 0, version=2)
    assert host.end((1000, 1), commit=False, version=2) == (1000, 2)
    assert host.add(producer, 1, version=2) == FENCED, "a delayed write of an earlier transaction"
    assert host.end(producer, version=2) == FENCED, "a delayed end of an earlier transaction"


def test_t11_a_delayed_end_in_the_next_transaction_changes_nothing(host: Any) -> None:
    producer = host.init()
    host.add(producer, 0, version=2)
    assert host.end(producer, version=2) == (1000, 1)
    assert host.add((1000, 1), 0, version=2) == NONE
    count = len(host.log)
    for commit in (True, False):
        assert host.end(producer, commit=commit, version=2) == FENCED
    assert len(host.log) == count
    assert host.state == State.ONGOING


@pytest.mark.parametrize(
    ("state", "commit", "again", "expected"),
    [
        # The table of Kafka's TransactionCoordinator. `again`: with the epoch of the transaction before.
        ("empty", False, True, FENCED),
        ("empty", False, False, "raised"),
        ("empty", True, True, FENCED),
        ("empty", True, False, INVALID_STATE),
        ("aborted", False, True, "same"),
        ("aborted", False, False, "raised"),
        ("aborted", True, True, INVALID_STATE),
        ("aborted", True, False, INVALID_STATE),
        ("committed", False, True, INVALID_STATE),
        ("committed", False, False, "raised"),
        ("committed", True, True, "same"),
        ("committed", True, False, INVALID_STATE),
    ],
)
def test_t07_end_txn_with_version_2(host: Any, state: str, commit: bool, again: bool, expected: object) -> None:
    host.init()
    host.init()
    producer = (1000, 1)
    if state != "empty":
        host.add(producer, 0, version=2)
        producer = host.end(producer, commit=state == "committed", version=2)
        assert producer == (1000, 2)
    asked = (producer[0], producer[1] - 1) if again else producer
    answer = host.end(asked, commit=commit, version=2)
    if expected == "same":
        assert answer == producer
    elif expected == "raised":
        assert answer == (1000, producer[1] + 1)
        assert host.state == State.COMPLETE_ABORT
        assert host.transaction().start_ms == host.now_ms, "it began when it ended"
    else:
        assert answer == expected


def test_t07_while_markers_are_written_with_version_2(host: Any) -> None:
    producer = host.init()
    host.add(producer, 0, version=2)
    host.auto_markers = False
    assert host.end(producer, version=2) == (1000, 1), "answered before the markers"
    assert host.end(producer, version=2) == CONCURRENT
    assert host.end(producer, commit=False, version=2) == CONCURRENT
    assert host.end((1000, 1), version=2) == CONCURRENT, "the next transaction, ended too soon: nobody else knows its epoch"
    # Kafka 4.3 looks at nothing else before all markers are written, for the id itself may be about to change.
    for another in ((1000, 1), (1000, 9), (5, 0)):
        assert host.end(another, version=2) == CONCURRENT
        assert host.add(another, 0, version=2) == CONCURRENT
        assert host.init(another) == CONCURRENT
    assert host.verify((1000, 9), 0) == FENCED
    assert host.verify((5, 0), 0) == WRONG_PRODUCER
    assert host.verify((1000, 1), 0) == CONCURRENT
    host.write_markers()
    assert host.end(producer, version=2) == (1000, 1)


def test_used_up_epochs_at_the_end_of_a_transaction(host: Any) -> None:
    host.init()
    host.put(replace(host.transaction(), producer_epoch=LAST_EPOCH))
    producer = (1000, LAST_EPOCH)
    host.add(producer, 0, version=2)
    host.auto_markers = False
    assert host.end(producer, version=2) == (1001, 0)
    assert host.transaction().next_producer_id == 1001
    host.reload()
    assert host.transaction().next_producer_id == 1001, "promised, so it stays promised over a failover"
    assert [(marker.producer_id, marker.producer_epoch) for marker in host.to_write] == [(1000, LAST_EPOCH + 1)]
    host.write_markers()
    assert (host.transaction().producer_id, host.transaction().producer_epoch) == (1001, 0)
    assert host.end(producer, version=2) == (1001, 0), "the answer was lost: the same again"
    host.reload()
    assert host.end(producer, version=2) == (1001, 0)
    assert host.end(producer, commit=False, version=2) == INVALID_STATE
    assert host.add((1001, 0), 0, version=2) == NONE
    assert host.end(producer, version=2) in (FENCED, WRONG_PRODUCER)


def test_a_client_may_change_its_generation(host: Any) -> None:
    producer = host.init()
    host.add(producer, 0)
    assert host.end(producer) == NONE
    host.add(producer, 0, version=2)
    assert host.end(producer, version=2) == (1000, 1)
    host.add((1000, 1), 0)
    assert host.end((1000, 1)) == NONE
    assert host.end((1000, 1)) == NONE


# T05: time


@pytest.mark.parametrize("version", [0, 2])
def test_t05_a_transaction_past_its_time_is_aborted_with_a_raised_epoch(host: Any, version: int) -> None:
    producer = host.init(timeout_ms=1000)
    host.add(producer, 0, version=version)
    host.now_ms += 900
    host.add(producer, 1, version=version)
    host.now_ms += 100
    assert host.time_out() == []
    host.now_ms += 1
    assert host.time_out() == ["t"], "its time runs from its first partition on"
    assert host.state == State.COMPLETE_ABORT
    assert sorted(host.written) == [(P0, 1000, 1, False), (P1, 1000, 1, False)]
    assert host.add(producer, 1, version=version) == FENCED
    assert host.time_out() == []
    if version == 0:
        assert host.end(producer) == FENCED
    else:
        assert host.end(producer, version=2) == INVALID_STATE, "it wanted to commit what was aborted"
        assert host.end(producer, commit=False, version=2) == (1000, 1), "and may go on with the next epoch"
    assert host.init(producer) == (1000, 1)


def test_t05_a_timeout_at_the_last_epoch(host: Any) -> None:
    host.init(timeout_ms=1000)
    host.put(replace(host.transaction(), producer_epoch=LAST_EPOCH))
    host.add((1000, LAST_EPOCH), 0)
    host.now_ms += 5000
    assert host.time_out() == ["t"]
    assert host.written == [(P0, 1000, LAST_EPOCH + 1, False)]
    assert (host.transaction().producer_id, host.transaction().producer_epoch) == (1001, 0)


def test_idle_ids_do_not_time_out(host: Any) -> None:
    producer = host.init(timeout_ms=1000)
    host.now_ms += 100_000
    assert host.time_out() == []
    host.add(producer, 0)
    host.auto_markers = False
    host.end(producer)
    host.now_ms += 100_000
    assert host.time_out() == []


def test_ids_nobody_uses_are_forgotten(make_host: Callable[..., Any]) -> None:
    host = make_host(id_expiration_ms=10_000)
    host.init(name="empty")
    committed = host.init(name="committed")
    host.add(committed, 0, name="committed")
    host.end(committed, name="committed")
    open_one = host.init(name="open")
    host.add(open_one, 0, name="open")
    host.now_ms += 9_999
    assert not host.shard.expire_ids(host.now_ms).records
    host.now_ms += 1
    host.do(host.shard.expire_ids(host.now_ms))
    assert set(host.shard.transactions) == {"open"}
    host.reload()
    assert set(host.shard.transactions) == {"open"}
    assert host.add(committed, 0, name="committed") == WRONG_PRODUCER
    assert host.init(name="empty") == (1003, 0)


# T06: a coordinator takes over


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_t06_a_successor_finishes_what_was_decided(host: Any, commit: bool, version: int) -> None:
    producer = host.init()
    host.add(producer, 0, 1, version=version)
    host.auto_markers = False
    host.end(producer, commit=commit, version=version)
    host.reload()
    assert host.state == (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT)
    host.write_markers(failing={P1})
    assert host.state == (State.PREPARE_COMMIT if commit else State.PREPARE_ABORT), "not all have been told"
    host.reload()
    host.write_markers()
    epoch = 1 if version == 2 else 0
    assert set(host.written) == {(P0, 1000, epoch, commit), (P1, 1000, epoch, commit)}
    assert host.state == (State.COMPLETE_COMMIT if commit else State.COMPLETE_ABORT)


def test_t06_before_the_decision_a_transaction_goes_on(host: Any) -> None:
    producer = host.init()
    host.add(producer, 0)
    host.reload()
    assert host.add(producer, 1) == NONE
    host.reload()
    assert host.end(producer) == NONE
    assert {entry[0] for entry in host.written} == {P0, P1}


def test_a_marker_that_could_not_be_written_is_tried_again(host: Any) -> None:
    producer = host.init()
    host.add(producer, 0, 1)
    host.auto_markers = False
    host.end(producer)
    host.write_markers(failing={P0})
    assert not host.to_write
    host.advance(100)
    assert [sorted(marker.partitions) for marker in host.to_write] == [[P0]], "only what is still owed"
    host.write_markers()
    assert host.state == State.COMPLETE_COMMIT
    host.advance(1000)
    assert not host.to_write


def test_a_partition_that_takes_no_marker_for_long_is_asked_more_and_more_rarely(host: Any) -> None:
    def pauses(times: int) -> list[int]:
        found = []
        for _ in range(times):
            host.write_markers(failing={P0})
            (due_ms,) = host.timers.values()
            found.append(due_ms - host.ms)
            host.advance(found[-1])
            assert len(host.to_write) == 1
        return found

    producer = host.init()
    host.auto_markers = False
    host.add(producer, 0)
    host.end(producer)
    assert pauses(8) == [50, 100, 200, 400, 800, 1600, 2000, 2000]
    host.write_markers()
    assert host.state == State.COMPLETE_COMMIT
    host.add(producer, 0)
    host.end(producer)
    assert pauses(2) == [50, 100], "the next transaction has its own count"


def test_a_late_word_of_an_earlier_transactions_markers_settles_nothing(host: Any) -> None:
    producer = host.init()
    host.add(producer, 0, version=2)
    host.auto_markers = False
    host.end(producer, version=2)
    late = host.to_write[0]
    host.write_markers()
    host.add((1000, 1), 0, version=2)
    host.end((1000, 1), commit=False, version=2)
    assert not host.shard.markers_written(late, late.partitions, host.now_ms).records
    assert host.state == State.PREPARE_ABORT


def test_an_end_without_partitions_is_complete_at_once(host: Any) -> None:
    producer = host.init()
    assert host.end(producer, commit=False, version=2) == (1000, 1)
    assert host.state == State.COMPLETE_ABORT
    assert host.written == []


# Administration


def test_describe_and_select(host: Any) -> None:
    producer = host.init(timeout_ms=7000)
    host.init(name="u")
    host.add(producer, 1, 0)
    host.add(producer, 3, topic="a")
    host.now_ms += 50
    found = host.shard.describe("t")
    assert (found.error_code, found.transaction_state, found.producer_id, found.producer_epoch) == (0, "Ongoing", 1000, 0)
    assert (found.transaction_timeout_ms, found.transaction_start_time_ms) == (7000, host.now_ms - 50)
    assert [(topic.topic, topic.partitions) for topic in found.topics] == [("a", [3]), ("p", [0, 1])]
    assert host.shard.describe("nobody").error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
    assert host.shard.describe("").error_code == ErrorCode.INVALID_REQUEST

    def names(states: Any = (), ids: Any = (), older: int = -1) -> list[str]:
        return [each.transactional_id for each in host.shard.select(states, ids, older, host.now_ms)]

    assert names() == ["t", "u"]
    assert names({State.ONGOING}) == ["t"]
    assert names((), [1001]) == ["u"]
    assert names({State.ONGOING}, (), 49) == ["t"]
    assert names({State.ONGOING}, (), 50) == []


# Records


def test_records_are_kafkas() -> None:
    assert encode_key("t") == b"\0\0\0\x01t"
    value = TransactionLogValue(
        producer_id=7,
        previous_producer_id=6,
        producer_epoch=2,
        transaction_timeout_ms=60000,
        transaction_status=State.EMPTY,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=-1,
        client_transaction_version=2,
    )
    assert encode_value(value) == (
        b"\0\x01" + (7).to_bytes(8, "big") + b"\0\x02" + (60000).to_bytes(4, "big") + b"\0" + b"\0"
        + (5).to_bytes(8, "big") + b"\xff" * 8
        + b"\x02" + b"\0\x08" + (6).to_bytes(8, "big") + b"\x02\x02\0\x02"
    )  # fmt: skip
    assert decode_record(encode_key("t"), encode_value(value)) == ("t", value)
    old = decode_record(encode_key("t"), encode_value(value, 0))
    assert old is not None
    assert old[1] is not None
    assert (old[1].producer_id, old[1].previous_producer_id, old[1].client_transaction_version) == (7, -1, 0)


@pytest.mark.parametrize("partitions", [None, {}, {"t": [0]}, {"a" * 200: list(range(200)), "ü": [2**31 - 1]}])
@pytest.mark.parametrize(("previous", "next_one", "version"), [(-1, -1, 0), (6, -1, 2), (2**40, 2**41, 2), (-1, 8, 0)])
def test_the_quick_way_to_a_value_is_that_of_the_codec(
    partitions: dict[str, list[int]] | None, previous: int, next_one: int, version: int
) -> None:
    value = TransactionLogValue(
        producer_id=2**62,
        previous_producer_id=previous,
        next_producer_id=next_one,
        producer_epoch=32766,
        transaction_timeout_ms=60000,
        transaction_status=State.ONGOING,
        transaction_partitions=None
        if partitions is None
        else [PartitionsSchema(topic=topic, partition_ids=numbers) for topic, numbers in partitions.items()],
        transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=-1,
        client_transaction_version=version,
    )
    quick = transaction_value(2**62, previous, next_one, 32766, 60000, State.ONGOING, partitions, 5, -1, version)
    assert quick == encode_value(value)


def test_records_of_another_kind_are_passed_over_and_broken_ones_refused(host: Any) -> None:
    host.shard.replay(b"\0\x09abc", b"x")
    assert not host.shard.transactions
    value = encode_value(TransactionLogValue(producer_id=1, transaction_partitions=None))
    for record in (
        CoordinatorRecord(b"", None),
        CoordinatorRecord(encode_key("t"), b"\0"),
        CoordinatorRecord(encode_key("t"), b"\0\x09" + value[2:]),
        CoordinatorRecord(encode_key("t"), value[:-3]),
        CoordinatorRecord(encode_key("t"), encode_value(TransactionLogValue(transaction_status=99, transaction_partitions=[]))),
    ):
        with pytest.raises(MalformedInput):
            host.shard.replay(record.key, record.value)
