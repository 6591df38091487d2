"""The rules of the world `transactions`, each broken by hand; actors wait, resend and repeat as they should."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.records.control import ABORT, COMMIT, marker_fields
from ottla.records.record import build_batch
from ottla.sim.actors.copier import check_copies
from ottla.sim.actors.play import Habits, Play, SendNote
from ottla.sim.kernel.disk import SimDisk
from ottla.sim.kernel.process import Process
from ottla.sim.kernel.trace import Trace
from ottla.sim.models.checkers import check_producers, check_table
from ottla.sim.models.history import Outcome
from ottla.sim.violation import Violation

PLACE = ("t", 0)


def log_of(*batches: Any, producers: Any = (), aborted: Any = ()) -> Any:
    disk = SimDisk(random.Random(1))
    view = disk.view(Process("p"))
    view.make_dirs("/d/t-0")
    view.open("/d/t-0/00000000000000000000.log", create=True).write(0, list(batches))
    found = [
        SimpleNamespace(producer_id=number, epoch=epoch, last_sequence=sequence, txn_first_offset=first)
        for number, epoch, sequence, first in producers
    ]
    entries = [SimpleNamespace(producer_id=number, first_offset=first, last_offset=last) for number, first, last in aborted]
    return disk, SimpleNamespace(dir="/d/t-0", log_start_offset=0, producers=found, aborted=lambda start, end: entries)


def batch(offset: Any, count: Any = 1, *, epoch: Any = 0, sequence: Any = 0, transactional: Any = True) -> Any:
    records = [(None, b"%d" % number, (), 1000) for number in range(count)]
    return build_batch(
        records,
        base_offset=offset,
        producer_id=7,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )


def marker(offset: Any, kind: Any, epoch: Any = 0) -> Any:
    record = (*marker_fields(kind == COMMIT, 0), (), 1000)
    return build_batch([record], base_offset=offset, producer_id=7, producer_epoch=epoch, transactional=True, control=True)


@pytest.mark.parametrize(
    ("batches", "producer", "aborted"),
    [
        ([batch(0, 3)], (7, 0, 2, 0), []),
        ([batch(0, 3), batch(3, sequence=3)], (7, 0, 3, 0), []),
        ([batch(0, 3), marker(3, COMMIT)], (7, 0, 2, -1), []),
        ([batch(0, 3), marker(3, ABORT)], (7, 0, 2, -1), [(7, 0, 3)]),
        ([batch(0, 3), marker(3, ABORT, epoch=1)], (7, 1, -1, -1), [(7, 0, 3)]),
        ([batch(0, 2, transactional=False)], (7, 0, 1, -1), []),
    ],
)
def test_producers_are_what_the_log_says(batches: Any, producer: Any, aborted: Any) -> None:
    check_producers(*log_of(*batches, producers=[producer], aborted=aborted))
    number, epoch, sequence, first = producer
    for wrong in (
        (number, epoch + 1, sequence, first),
        (number, epoch, sequence + 1, first),
        (number, epoch, sequence, first + 1),
    ):
        with pytest.raises(Violation, match="producers"):
            check_producers(*log_of(*batches, producers=[wrong], aborted=aborted))
    with pytest.raises(Violation, match="forgotten"):
        check_producers(*log_of(*batches, aborted=aborted))
    with pytest.raises(Violation, match="aborted-list"):
        check_producers(*log_of(*batches, producers=[producer], aborted=[*aborted, (9, 0, 1)]))


def sent(value: Any, offset: Any, transaction: Any = None, outcome: Any = Outcome.OK) -> Any:
    return SendNote("p", PLACE, value, 0, b"k", 1, outcome, offset, transaction)


def test_a_table_has_the_last_that_was_committed() -> None:
    sends = [sent(b"a", 0), sent(b"b", 1, "t1"), sent(b"c", 3, "t2")]
    ends = {"t1": Outcome.OK}
    check_table(PLACE, sends, ends, [(1, b"b")])
    with pytest.raises(Violation, match="compaction"):
        check_table(PLACE, sends, ends, [(0, b"a")])
    with pytest.raises(Violation, match="aborted read"):
        check_table(PLACE, sends, ends, [(1, b"b"), (3, b"c")])
    with pytest.raises(Violation, match="content"):
        check_table(PLACE, sends, ends, [(1, b"b"), (5, b"x")])


def test_copies_are_what_was_copied() -> None:
    read = {("s", 0): [(0, b"1"), (1, b"2")], ("t", 0): [(0, b"1@7"), (1, b"2@8")]}
    check_copies([("s", 0)], "t", read)
    for wrong in ([(0, b"1@7")], [(0, b"1@7"), (1, b"1@9"), (2, b"2@8")], [(0, b"2@8"), (1, b"1@7")]):
        with pytest.raises(Violation, match="exactly-once"):
            check_copies([("s", 0)], "t", {**read, ("t", 0): wrong})


def new_play() -> Any:
    return Play(random.Random(1), Trace(lambda: 0.0), lambda: 0.0, [("h", 1)], Habits())


def test_an_epoch_belongs_to_one_instance() -> None:
    play = new_play()
    play.was_given("id", 5, 0, "id.0")
    play.was_given("id", 5, 1, "id.1")
    play.was_given("id", 5, 1, "id.1")
    with pytest.raises(Violation, match="fenced"):
        play.was_given("id", 5, 0, "id.1")
    with pytest.raises(Violation, match="producer-id"):
        play.was_given("other", 5, 7, "other.0")
