"""The history checker: each anomaly, planted in a small history, is found, and nothing else; a clean history gives nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.sim.models.history import (
    Anomaly,
    Commit,
    Committed,
    End,
    Event,
    Exhausted,
    Kind,
    Outcome,
    Poll,
    Seek,
    Send,
    anomalies,
)

A, B = ("t", 0), ("t", 1)
SOURCE = ("s", 0)
OK, FAILED, UNKNOWN = Outcome.OK, Outcome.FAILED, Outcome.UNKNOWN


def kinds(events: list[Event]) -> list[Kind]:
    return [anomaly.kind for anomaly in anomalies(events)]


def sent(
    value: bytes, offset: int | None, at: int, place: tuple[str, int] = A, txn: str | None = None, outcome: Outcome = OK
) -> Send:
    return Send("p", place, value, at, at + 1 if outcome is OK else None, outcome, offset, txn)


def polled(*records: tuple[int, bytes], place: tuple[str, int] = A, at: int = 100, consumer: str = "c") -> Poll:
    return Poll(consumer, place, records, at, at + 1)


# Offset 2 of A and 1 of B are the marker of `commits`, 4 of A that of `aborts`; `p` goes on without a transaction.
WRITES: list[Event] = [
    sent(b"a0", 0, 0, txn="commits"),
    sent(b"a1", 1, 2, txn="commits"),
    sent(b"b0", 0, 4, B, txn="commits"),
    Commit("g", SOURCE, 3, 5, 6, OK, "commits"),
    End("commits", 6, 8, OK),
    sent(b"a3", 3, 10, txn="aborts"),
    Commit("g", SOURCE, 9, 11, 12, OK, "aborts"),
    End("aborts", 12, 14, FAILED),
    sent(b"a5", 5, 20),
    sent(b"a6", 6, 22),
]
READS: list[Event] = [
    Seek("c", A, 0),
    Seek("c", B, 0),
    polled((0, b"a0"), (1, b"a1")),
    polled((5, b"a5"), (6, b"a6"), at=110),
    polled((0, b"b0"), place=B, at=120),
    Committed("g", SOURCE, 3, 130, 131),
    Exhausted("c", A),
    Exhausted("c", B),
]
CLEAN = WRITES + READS


def changed(old: Event, *new: Event) -> list[Event]:
    """The clean history with another event in this one's place."""
    at = CLEAN.index(old)
    return CLEAN[:at] + list(new) + CLEAN[at + 1 :]


def test_a_clean_history_gives_nothing() -> None:
    assert anomalies(CLEAN) == []
    assert anomalies([]) == []


def test_lost_write() -> None:
    found = anomalies(changed(READS[3], polled((5, b"a5"), at=110)))
    assert found == [Anomaly(Kind.LOST, "b'a6' was acknowledged at t-0:6 and is not there")]
    # Without a reader at the end there is no verdict.
    assert anomalies(WRITES) == []


def test_a_committed_transaction_that_is_nowhere_is_lost() -> None:
    events = [event for event in CLEAN if event not in (READS[2], READS[4])]
    assert kinds(events) == [Kind.LOST] * 3


@pytest.mark.parametrize("again", [polled((7, b"a5"), at=112), polled((1, b"a5"), place=B, at=121)])
def test_duplicate(again: Poll) -> None:
    (found,) = anomalies([*CLEAN, again])
    assert found.kind is Kind.DUPLICATE
    assert "t-0:5" in found.detail


def test_aborted_read() -> None:
    events = changed(READS[3], polled((3, b"a3"), (5, b"a5"), (6, b"a6"), at=110))
    assert anomalies(events) == [Anomaly(Kind.ABORTED, "c read b'a3' at t-0:3, of transaction aborts")]
    # A reader of everything may.
    uncommitted = replace(polled((3, b"a3"), at=111, consumer="u"), committed=False)
    assert anomalies([*CLEAN, uncommitted]) == []


def test_a_transaction_that_was_never_asked_to_commit_must_not_be_seen() -> None:
    events = [*CLEAN, sent(b"a7", 7, 30, txn="open"), polled((7, b"a7"), at=140)]
    assert kinds(events) == [Kind.ABORTED]
    assert kinds([*CLEAN, sent(b"a7", 7, 30, txn="open")]) == []


def test_a_send_that_failed_must_not_be_seen() -> None:
    events = [*CLEAN, Send("q", A, b"no", 30, 31, FAILED), polled((7, b"no"), at=140)]
    assert kinds(events) == [Kind.ABORTED]


@pytest.mark.parametrize("outcome", [OK, UNKNOWN])
def test_torn_transaction(outcome: Outcome) -> None:
    events = changed(READS[4], polled(place=B, at=120))
    events[events.index(WRITES[4])] = End("commits", 6, 8, outcome)
    found = anomalies(events)
    assert Anomaly(Kind.TORN, "of transaction commits, 1 of 3 are missing, as b'b0'") in found
    assert {each.kind for each in found} == ({Kind.TORN, Kind.LOST} if outcome is OK else {Kind.TORN})


def test_skipped_poll() -> None:
    hasty = [Seek("d", A, 0), polled((0, b"a0"), consumer="d"), polled((5, b"a5"), consumer="d", at=111)]
    assert anomalies(CLEAN + hasty) == [Anomaly(Kind.SKIPPED, "d jumped from 1 to t-0:5, past 1")]  # type: ignore[operator]
    # A reader that starts later has not skipped what is before.
    assert anomalies([*CLEAN, Seek("d", A, 4), polled((5, b"a5"), consumer="d")]) == []


def test_repeated_poll() -> None:
    assert kinds([*CLEAN, polled((5, b"a5"), (6, b"a6"), at=115)]) == [Kind.REPEATED, Kind.REPEATED]
    # Unless it did a seek.
    assert anomalies([*CLEAN, Seek("c", A, 5), polled((5, b"a5"), (6, b"a6"), at=115)]) == []


def test_offsets_that_go_back_within_a_poll() -> None:
    # The step over 5 looks like a skip too, until it comes.
    assert kinds(changed(READS[3], polled((6, b"a6"), (5, b"a5"), at=110))) == [Kind.SKIPPED, Kind.OFFSETS]


def test_real_time_order_of_writes() -> None:
    # Of two producers: only time says which was first.
    late = Send("q", A, b"late", 40, 41, OK, 7)
    early = Send("r", A, b"early", 30, 31, OK, 8)
    assert kinds([*WRITES, late, early]) == [Kind.REAL_TIME]
    # At the same time, either may be first.
    assert anomalies([*WRITES, late, replace(early, end=40)]) == []


def test_real_time_order_of_reads() -> None:
    assert kinds([*CLEAN, Send("q", A, b"later", 300, 301, OK, 7), polled((7, b"later"), at=200)]) == [Kind.REAL_TIME]
    told = Poll("u", A, (), 200, 201, committed=False, at_end=True)
    assert kinds([*CLEAN, Seek("u", A, 6), told]) == [Kind.REAL_TIME]
    assert anomalies([*CLEAN, Seek("u", A, 7), told]) == []
    assert anomalies([*CLEAN, Seek("u", A, 6), replace(told, start=23)]) == [], "the answer may have come after it began"


def test_reordered_sends() -> None:
    # In flight together: time says nothing, but the order of one producer must hold.
    first, second = Send("q", A, b"q0", 30, 40, OK, 8), Send("q", A, b"q1", 30, 40, OK, 7)
    assert kinds([*WRITES, first, second]) == [Kind.REORDERED]
    assert anomalies([*WRITES, second, first]) == []


def test_a_record_that_changes_or_was_never_sent() -> None:
    assert kinds([*CLEAN, Seek("d", A, 0), polled((0, b"a6"), consumer="d")]) == [Kind.CHANGED]
    assert kinds([*CLEAN, polled((7, b"what"), at=115)]) == [Kind.INVENTED]
    assert kinds(changed(WRITES[9], sent(b"a6", 7, 22))) == [Kind.CHANGED]


def test_positions() -> None:
    asked = READS[5]
    assert kinds(changed(asked, Committed("g", SOURCE, 9, 130, 131))) == [Kind.ABORTED]
    assert kinds(changed(asked, Committed("g", SOURCE, 4, 130, 131))) == [Kind.POSITION]
    assert kinds(changed(asked, Committed("g", SOURCE, None, 130, 131))) == [Kind.POSITION]
    later = Commit("g", SOURCE, 7, 40, 41, OK)
    assert kinds([*CLEAN, later]) == [Kind.POSITION], "3 was overtaken by 7 before it was asked"
    assert anomalies([*CLEAN, replace(later, end=130)]) == [], "7 was perhaps not yet there"
    assert anomalies([*CLEAN, replace(later, end=None, outcome=UNKNOWN)]) == []
    assert anomalies(changed(asked, replace(later, end=None, outcome=UNKNOWN), Committed("g", SOURCE, 7, 130, 131))) == []


@pytest.mark.parametrize("seen", [True, False])
def test_an_unknown_outcome_is_neither_lost_nor_doubled(seen: bool) -> None:
    unheard: list[Event] = [
        sent(b"a7", None, 30, outcome=UNKNOWN),
        sent(b"a8", 8, 32, txn="unheard"),
        sent(b"a9", None, 34, txn="unheard", outcome=UNKNOWN),
        End("unheard", 36, None, UNKNOWN),
    ]
    read: list[Event] = [polled((7, b"a7"), (8, b"a8"), (9, b"a9"), at=140)] if seen else []
    assert anomalies(CLEAN + unheard + read) == []
    # A duplicate is still a duplicate.
    if seen:
        assert kinds([*CLEAN, *unheard, *read, polled((11, b"a7"), at=141)]) == [Kind.DUPLICATE]


def test_values_must_tell_sends_apart() -> None:
    with pytest.raises(ValueError, match="sent twice"):
        anomalies([*CLEAN, sent(b"a0", 9, 50)])
