"""L04: a crash at each step of compaction, of the swap and of the recovery after it loses and doubles nothing."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from ottla.sim.kernel.disk import Fault, SimDisk
from ottla.sim.kernel.disk_view import OP_CREATE, OP_FLUSH, OP_FLUSH_DIR, OP_RENAME, OP_WRITE, DiskView
from ottla.sim.kernel.process import Process, ProcessDied
from ottla.storage.checkpoint import write_offsets
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir
from ottla.storage.log import Log
from ottla.storage.names import CLEANED_OFFSETS
from tests.kit.compaction import COMPACTED, compact, dirt_of, pairs, put
from tests.kit.storage import NOW_MS, TOPIC_ID, TP, seeded_random

CONFIG = replace(COMPACTED, segment_bytes=400)
Pair = tuple[int, bytes | None, bytes | None]


class Machine:
    def __init__(self, seed: int) -> None:
        self.disk = SimDisk(random.Random(seed))
        self.process = Process("broker")
        self.view: DiskView = self.disk.view(self.process)

    def load(self) -> tuple[DataDir, Log]:
        """Start again. The settings of the topic are not known yet when a broker loads its logs."""
        self.process = Process("broker")
        self.view = self.disk.view(self.process)
        data_dir = DataDir.open(self.view, "/data", 1, "cluster", seeded_random())
        data_dir.load(lambda topic: LogConfig(), NOW_MS)
        log = data_dir.logs[TP]
        log.config = CONFIG
        log.high_watermark = log.log_end_offset
        return data_dir, log

    def prepare(self) -> tuple[DataDir, Log]:
        """A log with a clean part, a dirty part in several segments, tombstones, a producer id, and an active segment."""
        data_dir = DataDir.open(self.view, "/data", 1, "cluster", seeded_random())
        data_dir.load(lambda topic: CONFIG, NOW_MS)
        log = data_dir.create_log(TP, TOPIC_ID, CONFIG, NOW_MS)
        for number in range(6):
            put(log, (b"a", b"%d" % number), (b"clean-%d" % number, b"x"))
        log.roll(NOW_MS)
        compact(self.view, log)
        for number in range(6):
            put(log, (b"a", b"new%d" % number), (b"clean-%d" % (number % 3), None), (b"dirty-%d" % number, bytes(40)))
        put(log, (b"dirty-1", b"last"), producer_id=3, producer_epoch=0, base_sequence=0)
        log.roll(NOW_MS)
        put(log, (b"a", b"active"), (b"b", b"active"))
        log.flush(NOW_MS)
        data_dir.write_checkpoints()
        self.disk.flush_all()
        return data_dir, log

    def end(self, power_loss: bool) -> None:
        self.process.die()
        self.disk.faults.clear()
        self.disk.forget_crash_point()
        if power_loss:
            self.disk.crash()
        else:
            self.disk.kill(self.process)


def outcome(seed: int) -> tuple[list[Pair], list[Pair], int]:
    """The log before and after an undisturbed pass, and the changes of the disk that the pass takes."""
    machine = Machine(seed)
    _, log = machine.prepare()
    before = pairs(log)
    first = machine.disk.operations
    compact(machine.view, log, NOW_MS)
    return before, pairs(log), machine.disk.operations - first


def check_between(log: Log, before: list[Pair], after: list[Pair]) -> None:
    found = pairs(log)
    assert len({offset for offset, _, _ in found}) == len(found), "doubled"
    assert found == sorted(found, key=lambda pair: pair[0])
    assert set(after) <= set(found), "lost"
    assert set(found) <= set(before), "invented"
    assert log.log_end_offset == before[-1][0] + 1
    assert log.log_start_offset == 0
    for offset, key, value in after:
        assert (offset, key, value) in pairs_from(log, offset)


def pairs_from(log: Log, offset: int) -> list[Pair]:
    info = log.read(offset, 1 << 20, log.log_end_offset, True)
    assert info.size > 0
    return pairs(log)


def no_remains(machine: Machine) -> None:
    ends = (".cleaned", ".swap", ".deleted")
    assert not [path for path in machine.disk.paths("/data") if path.endswith(ends)]


def survive(machine: Machine, before: list[Pair], after: list[Pair]) -> None:
    """The log after a restart: right at once, and the next pass brings it to where the other one would have."""
    _, log = machine.load()
    no_remains(machine)
    check_between(log, before, after)
    compact(machine.view, log, NOW_MS)
    assert pairs(log) == after


@pytest.mark.parametrize("power_loss", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_l04_a_crash_at_each_step_loses_and_doubles_nothing(seed: int, power_loss: bool) -> None:
    before, after, operations = outcome(seed)
    assert operations > 20
    assert len(after) < len(before)
    for step in range(1, operations + 1):
        machine = Machine(seed * 1000 + step)
        _, log = machine.prepare()
        machine.disk.crash_after(step, machine.process.die)
        with pytest.raises(ProcessDied):
            compact(machine.view, log, NOW_MS)
        machine.end(power_loss)
        survive(machine, before, after)


@pytest.mark.parametrize("power_loss", [False, True])
def test_l04_a_crash_at_each_step_of_the_recovery_after_a_crash(power_loss: bool) -> None:
    before, after, operations = outcome(0)
    twice = 0
    for step in range(1, operations + 1):
        for second in (1, 2, 4, 7):
            machine = Machine(step * 100 + second)
            _, log = machine.prepare()
            machine.disk.crash_after(step, machine.process.die)
            with pytest.raises(ProcessDied):
                compact(machine.view, log, NOW_MS)
            machine.end(power_loss)
            try:
                machine.disk.crash_after(second, lambda machine=machine: machine.process.die())  # type: ignore[misc]
                machine.load()
            except ProcessDied:
                twice += 1
            machine.end(power_loss)
            survive(machine, before, after)
    assert twice > operations // 2


def fail_at(operation: str, after: int) -> Callable[[SimDisk], None]:
    return lambda disk: disk.faults.append(Fault(operation, "/data", errno.EIO, after=after))


@pytest.mark.parametrize("operation", [OP_CREATE, OP_WRITE, OP_FLUSH, OP_RENAME, OP_FLUSH_DIR])
def test_l04_a_disk_that_fails_at_any_step_leaves_a_log_that_is_whole(operation: str) -> None:
    before, after, _ = outcome(0)
    failures = 0
    for number in range(200):
        machine = Machine(number)
        _, log = machine.prepare()
        fail_at(operation, number)(machine.disk)
        try:
            compact(machine.view, log, NOW_MS)
        except OSError:
            failures += 1
        else:
            break
        machine.end(power_loss=bool(number % 2))
        survive(machine, before, after)
    assert failures > 0


def test_l04_cleaned_files_are_discarded_and_swap_files_completed() -> None:
    """The two rules by themselves, at the two moments that divide them."""
    before, _, operations = outcome(0)
    seen = set()
    for step in range(1, operations + 1):
        machine = Machine(step)
        _, log = machine.prepare()
        for path in log.take_deleted(NOW_MS):
            machine.view.remove(path)
        machine.disk.crash_after(step, machine.process.die)
        with pytest.raises(ProcessDied):
            compact(machine.view, log, NOW_MS)
        names = [path.rpartition("/")[2] for path in machine.disk.paths("/data")]
        cleaned = any(name.endswith(".cleaned") for name in names)
        swapped = any(name.endswith(".log.swap") for name in names)
        replaced = any(name.endswith(".log.deleted") for name in names)
        machine.end(power_loss=False)
        _, log = machine.load()
        found = pairs(log)
        if cleaned and not swapped and not replaced:
            assert found == before
            seen.add("cleaned")
        if swapped and not cleaned:
            assert len(found) < len(before)
            seen.add("swap")
    assert seen == {"cleaned", "swap"}


def test_the_cleaner_checkpoint_is_read_at_load_and_not_believed_beyond_the_log() -> None:
    machine = Machine(0)
    data_dir, log = machine.prepare()
    assert log.cleaned_offset == 12
    write_offsets(machine.view, f"/data/{CLEANED_OFFSETS}", {TP: 12})
    data_dir.close()
    machine.end(power_loss=True)
    data_dir, log = machine.load()
    assert log.cleaned_offset == 12
    assert dirt_of(log).first_dirty_offset == 12
    log.truncate_to(7)
    assert log.cleaned_offset == 7
    log.cleaned_offset = 1000
    assert dirt_of(log).first_dirty_offset == 0
    # a new log of the same name starts anew
    data_dir.delete_log(TP)
    assert data_dir.create_log(TP, TOPIC_ID, CONFIG, NOW_MS).cleaned_offset is None
    machine.end(power_loss=False)
    assert machine.disk.contents(f"/data/{CLEANED_OFFSETS}") == b"0\n0\n"
