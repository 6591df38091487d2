"""Each rule of the checkers, broken by hand, is reported."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from ottla.records.record import build_batch
from ottla.sim.kernel.disk import SimDisk
from ottla.sim.kernel.process import Process
from ottla.sim.kernel.trace import Trace
from ottla.sim.models.group_model import CONSUMER_SESSION_S, NOTHING_COMMITTED, GroupModel
from ottla.sim.models.log_files import guaranteed_end, scan
from ottla.sim.models.log_model import LogModel, Written, check_contents, check_indexes
from ottla.sim.models.partition_model import PartitionModel
from ottla.sim.violation import Violation


def batch(offset: Any, *values: Any, timestamp: Any = 1000, epoch: Any = 0) -> Any:
    built = build_batch([(None, value, (), timestamp + n) for n, value in enumerate(values)], base_offset=offset)
    return built[:12] + struct.pack(">i", epoch) + built[16:]


def new_log(*batches: Any) -> Any:
    disk = SimDisk(random.Random(1))
    view = disk.view(Process("p"))
    view.make_dirs("/d/t-0")
    file = view.open("/d/t-0/00000000000000000000.log", create=True)
    file.write(0, list(batches))
    return disk, view, file


def model_of(*batches: Any) -> Any:
    model = LogModel("t-0")
    for data in batches:
        for found in scan(data)[0]:
            model.add(Written(found.base_offset, found.last_offset, 0, (1000,), found.data))
    return model


def broken(check: Any) -> Any:
    with pytest.raises(Violation) as violation:
        check()
    return violation.value.rule


def test_contents() -> None:
    one, two = batch(0, b"a", b"b"), batch(2, b"c")
    disk, _, _ = new_log(one, two)
    check_contents(disk, "/d/t-0", model_of(one, two))
    assert broken(lambda: check_contents(disk, "/d/t-0", model_of(one))) == "offsets"
    assert broken(lambda: check_contents(disk, "/d/t-0", model_of(one, batch(2, b"X")))) == "content"
    disk, _, _ = new_log(one, batch(3, b"c"))
    assert broken(lambda: check_contents(disk, "/d/t-0", model_of(one, two))) == "offsets"
    disk, _, _ = new_log(one, two[:-1])
    assert broken(lambda: check_contents(disk, "/d/t-0", model_of(one, two))) == "no-torn-batch"


@pytest.mark.parametrize(
    ("index", "time_index", "holds"),
    [
        ([(2, None)], [(1001, 1)], True),
        ([(1, None)], [], False),
        ([(2, 5)], [], False),
        ([], [(1001, 0)], False),
        ([], [(999, 1)], False),
    ],
)
def test_indexes(index: Any, time_index: Any, holds: Any) -> None:
    one, two = batch(0, b"a", b"b"), batch(2, b"c")
    disk, view, _ = new_log(one, two)
    entries = [struct.pack(">ii", offset, len(one) if position is None else position) for offset, position in index]
    view.open("/d/t-0/00000000000000000000.index", create=True).write(0, [b"".join(entries)])
    times = [struct.pack(">qi", timestamp, offset) for timestamp, offset in time_index]
    view.open("/d/t-0/00000000000000000000.timeindex", create=True).write(0, [b"".join(times), bytes(12)])
    if holds:
        check_indexes(disk, "/d/t-0")
    else:
        assert broken(lambda: check_indexes(disk, "/d/t-0")) == "index-is-scan"


def test_what_is_guaranteed_needs_bytes_and_names() -> None:
    one, two = batch(0, b"a", b"b"), batch(2, b"c")
    disk, view, file = new_log(one)
    assert guaranteed_end(disk, "/d/t-0", 0) == 0
    file.flush()
    assert guaranteed_end(disk, "/d/t-0", 0) == 0, "its name may be lost"
    view.flush_dir("/d/t-0")
    assert guaranteed_end(disk, "/d/t-0", 0) == 2
    file.write(len(one), [two])
    assert guaranteed_end(disk, "/d/t-0", 0) == 2
    file.flush()
    assert guaranteed_end(disk, "/d/t-0", 0) == 3
    file.truncate(len(one))
    assert guaranteed_end(disk, "/d/t-0", 0) == 2


def test_a_batch_is_stored_once_where_it_was_acknowledged() -> None:
    model = PartitionModel("t-0", bytes(16))
    first, second = batch(0, b"a"), batch(0, b"b")
    sent = model.send(first, (1000,))
    model.acknowledge(sent, 5)
    assert model.observe(scan(batch(5, b"a"))[0][0]) is sent
    assert broken(lambda: model.observe(scan(batch(6, b"a"))[0][0])) == "offsets"
    assert broken(lambda: model.observe(scan(second)[0][0])) == "content"
    other = model.send(second, (1000,))
    assert broken(lambda: model.acknowledge(other, 5)) == "content"
    model.forget_lost(5)
    assert broken(lambda: model.observe(scan(batch(5, b"a"))[0][0])) == "came-back"


def test_a_trace_keeps_the_last_lines_and_a_hash_of_all() -> None:
    one, two = Trace(lambda: 1.0, keep=2), Trace(lambda: 1.0, keep=2)
    for trace in (one, two):
        for event in "abc":
            trace.add(event)
    assert [line.split()[-1] for line in one.last] == ["b", "c"]
    assert one.digest == two.digest
    two.add("d")
    assert one.digest != two.digest


@pytest.mark.parametrize(
    ("kind", "pause_s", "binding"),
    [
        ("consumer", CONSUMER_SESSION_S + 1, False),
        ("consumer", CONSUMER_SESSION_S - 1, True),
        ("classic", CONSUMER_SESSION_S + 1, True),
    ],
)
def test_offsets_older_than_their_retention_need_one_moment_without_members(kind: Any, pause_s: Any, binding: Any) -> None:
    """Seed 33: offsets expire counted from the commit, in a classic group from when it became empty, as in Kafka."""
    clock = [0.0]
    model = GroupModel("g", kind, ("t",), 60.0, lambda: clock[0])
    commit = model.committing(("t", 0), (5, ""), b"")
    model.committed(commit, 1)
    while clock[0] < 70:
        clock[0] += 1
        model.alive(clock[0])
    clock[0] += pause_s
    model.alive(clock[0])
    clock[0] += 1
    model.fetched(("t", 0), b"", (5, ""), clock[0])
    if binding:
        with pytest.raises(Violation):
            model.fetched(("t", 0), b"", NOTHING_COMMITTED, clock[0])
    else:
        model.fetched(("t", 0), b"", NOTHING_COMMITTED, clock[0])
