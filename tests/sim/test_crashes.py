"""Failures that seeds of the world `log` found, step by step (L01, L02, L03, L11)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.records.record import build_batch
from ottla.records.validate import Rules, check
from ottla.sim.kernel.disk import SimDisk
from ottla.sim.kernel.machine import SeededRandom
from ottla.sim.kernel.process import Process, ProcessDied
from ottla.sim.models.log_files import checkpoint_entries, scan
from ottla.sim.models.log_model import check_indexes
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir
from ottla.types import TopicPartition

NOW_MS = 1_700_000_000_000
TP = TopicPartition("orders", 0)
DIR = "/data/orders-0"
RULES = Rules(timestamp_after_max_ms=1 << 62)
WHOLE = LogConfig(segment_bytes=1 << 20, index_interval_bytes=0)
SMALL = LogConfig(segment_bytes=200, index_interval_bytes=0)
"""Two batches a segment."""


class Computer:
    """A disk, and one process after the other that opens the same data directory on it."""

    def __init__(self, config: Any = WHOLE, seed: Any = 1) -> None:
        self.disk = SimDisk(random.Random(seed), page_bytes=64)
        self.config = config
        self.start()

    def start(self) -> Any:
        self.process = Process("broker")
        self.data_dir = DataDir.open(self.disk.view(self.process), "/data", 1, "cluster", SeededRandom(random.Random(2)))
        logs = self.data_dir.load(lambda topic: self.config, NOW_MS)
        self.log = logs[0] if logs else self.data_dir.create_log(TP, b"i" * 16, self.config, NOW_MS)
        return self.log

    def kill(self) -> None:
        self.process.die()
        self.disk.kill(self.process)

    def crash(self) -> None:
        self.process.die()
        self.disk.crash()

    def append(self, *values: Any, epoch: Any = 0) -> None:
        for value in values:
            batch = bytearray(build_batch([(None, value, (), NOW_MS)]))
            self.log.append(check(batch, RULES, NOW_MS), epoch, NOW_MS)
        self.log.high_watermark = self.log.log_end_offset

    def checkpoint(self) -> None:
        self.data_dir.write_checkpoints()

    def path(self, base: Any, suffix: Any = ".log") -> Any:
        return f"{DIR}/{base:020d}{suffix}"

    def set_bytes(self, path: Any, data: Any) -> None:
        """Change the bytes on the disk, durably."""
        self.disk.inode(path).data[:] = data
        self.disk.flush_all()


def test_l01_a_last_batch_cut_at_every_byte() -> None:
    computer = Computer()
    computer.append(b"one", b"two", epoch=0)
    computer.append(b"three" * 5, epoch=7)
    computer.kill()
    whole = computer.disk.contents(computer.path(0))
    ends = [batch.position + len(batch.data) for batch in scan(whole)[0]]
    for size in range(len(whole)):
        computer.set_bytes(computer.path(0), whole[:size])
        log = computer.start()
        kept = sum(end <= size for end in ends)
        assert log.log_end_offset == kept
        assert computer.disk.contents(computer.path(0)) == whole[: ([0, *ends])[kept]]
        assert log.latest_epoch == (-1 if kept == 0 else 0), "the epoch of the torn batch never was"
        check_indexes(computer.disk, DIR)
        computer.kill()


def test_l01_zeros_behind_the_last_batch_are_truncated() -> None:
    computer = Computer()
    computer.append(b"one", b"two")
    computer.kill()
    whole = computer.disk.contents(computer.path(0))
    for zeros in (1, 11, 12, 60, 61, 62, 4096):
        computer.set_bytes(computer.path(0), whole + bytes(zeros))
        assert computer.start().log_end_offset == 2
        assert computer.disk.contents(computer.path(0)) == whole
        computer.kill()


def test_l02_a_flipped_bit_ends_the_log_and_later_segments_go() -> None:
    computer = Computer(SMALL)
    computer.append(*(b"%060d" % number for number in range(8)))
    assert len(computer.log.segments) > 3
    computer.kill()
    second = computer.log.local.bases[1]
    computer.disk.flip_bit(computer.path(second), 80)
    log = computer.start()
    assert log.log_end_offset == second
    assert log.local.bases == list(computer.log.local.bases)
    computer.append(b"again")
    assert computer.log.log_end_offset == second + 1


def test_l11_a_death_at_every_step_leaves_the_old_checkpoint_or_the_new() -> None:
    seen = set()
    for step in range(1, 60):
        for seed in range(3):
            computer = Computer(seed=seed)
            computer.append(b"one")
            computer.log.flush(NOW_MS)
            computer.checkpoint()
            computer.append(b"two")
            computer.log.flush(NOW_MS)
            computer.disk.crash_after(step, computer.process.die)
            try:
                computer.checkpoint()
            except ProcessDied:
                computer.disk.crash()
                seen.add(checkpoint_entries(computer.disk, "/data/recovery-point-offset-checkpoint")["orders", 0])
                assert computer.start().log_end_offset == 2
            else:
                assert seen == {1, 2}
                return
    pytest.fail("a checkpoint of one log takes fewer steps than that")


def test_a_new_log_directory_is_there_after_a_crash() -> None:
    """Log world, seed 31: its name was not durable, and everything flushed in it was lost."""
    for seed in range(20):
        computer = Computer(seed=seed)
        computer.append(b"one")
        computer.log.flush(NOW_MS)
        computer.crash()
        assert computer.start().log_end_offset == 1


def test_a_recreated_log_does_not_inherit_the_recovery_point() -> None:
    """Log world, seed 72: unflushed segments of the new log were not checked, because the old one had been flushed that far."""
    computer = Computer(SMALL)
    computer.append(*(b"%060d" % number for number in range(8)))
    computer.log.flush(NOW_MS)
    computer.checkpoint()
    computer.data_dir.delete_log(TP)
    computer.log = computer.data_dir.create_log(TP, b"j" * 16, SMALL, NOW_MS)
    computer.append(*(b"%061d" % number for number in range(8)))
    computer.kill()
    first = computer.disk.contents(computer.path(0))
    computer.set_bytes(computer.path(0), first[:-5])
    log = computer.start()
    assert log.log_end_offset == len(scan(first)[0]) - 1


def test_a_lost_segment_is_the_end_of_the_log() -> None:
    """Log world, seed 39: an unflushed segment had lost its records, the next one had not: readers met a gap."""
    computer = Computer(SMALL)
    computer.append(*(b"%060d" % number for number in range(8)))
    computer.kill()
    second = computer.log.local.bases[1]
    computer.set_bytes(computer.path(second), b"")
    assert computer.start().log_end_offset == second


def test_what_recovery_truncated_does_not_come_back() -> None:
    """Log world, seeds 57 and 27: the next crash brought a truncated tail and removed segments back."""
    for seed in range(30):
        computer = Computer(SMALL, seed)
        computer.append(*(b"%060d" % number for number in range(7)))
        computer.log.flush(NOW_MS)
        computer.kill()
        second = computer.log.local.bases[1]
        computer.disk.flip_bit(computer.path(second), 80)
        computer.start()
        computer.append(b"new" * 20)
        computer.crash()
        log = computer.start()
        batches = scan(computer.disk.contents(computer.path(second)))[0]
        assert log.log_end_offset in (second, second + 1)
        assert [batch.base_offset for batch in batches] == list(range(second, log.log_end_offset))
        assert not any(b"%060d" % second in batch.data for batch in batches), "the damaged batch is back"


def test_a_recovery_point_is_not_durable_before_the_log_start_it_moved_with() -> None:
    """Log world, seed 55: records below the new log start, never flushed, came back and were not checked."""
    for step in range(1, 40):
        computer = Computer(SMALL, seed=step)
        computer.append(*(b"%060d" % number for number in range(7)))
        computer.log.advance_log_start(3)
        computer.disk.crash_after(step, computer.process.die)
        try:
            computer.checkpoint()
        except ProcessDied:
            pass
        computer.crash()
        points = checkpoint_entries(computer.disk, "/data/recovery-point-offset-checkpoint")
        starts = checkpoint_entries(computer.disk, "/data/log-start-offset-checkpoint")
        if points.get(("orders", 0), 0) == 3:
            assert starts["orders", 0] == 3
        log = computer.start()
        for base in log.local.bases:
            data = computer.disk.contents(computer.path(base))
            if base + 2 > log.log_start_offset:
                assert scan(data)[1] == len(data)


def test_a_clean_stop_flushes_everything() -> None:
    """Broker world, seed 547, and log world, seed 12: indexes, and names of a flush plan that was never run, were not durable."""
    for seed in range(30):
        computer = Computer(SMALL, seed)
        computer.append(*(b"%060d" % number for number in range(7)))
        assert computer.log.flushes.plan() is not None, "taken, and never run: a broker that stops cancels it"
        computer.data_dir.close(clean=True)
        computer.crash()
        log = computer.start()
        assert computer.data_dir.was_clean
        assert log.log_end_offset == 7
        assert log.topic_id == b"i" * 16
        check_indexes(computer.disk, DIR)


def test_an_interrupted_truncation_leaves_no_gap() -> None:
    """Log world, seed 394: recovery does not look for gaps below the recovery point, so there must be none."""
    for step in range(1, 60):
        computer = Computer(SMALL, seed=step)
        computer.append(*(b"%060d" % number for number in range(9)))
        computer.log.flush(NOW_MS)
        computer.checkpoint()
        computer.disk.crash_after(step, computer.process.die)
        try:
            computer.log.truncate_to(3, NOW_MS)
        except ProcessDied:
            pass
        else:
            assert step > 3
            return
        computer.crash()
        log = computer.start()
        offsets = []
        for base in log.local.bases:
            offsets += [batch.base_offset for batch in scan(computer.disk.contents(computer.path(base)))[0]]
        assert offsets == list(range(log.log_end_offset))
        assert log.log_end_offset >= 3
    pytest.fail("a truncation takes fewer steps than that")


def test_an_index_of_aborted_transactions_that_recovery_finds_right_is_flushed() -> None:
    """Cluster world, seed 58: a kill left it unflushed; recovery had nothing to write, and moved the recovery point past it."""
    for seed in range(12):
        computer = Computer(SMALL, seed)
        for number in range(3):
            batch = build_batch(
                [(None, b"%040d" % number, (), NOW_MS)], producer_id=7, producer_epoch=0, base_sequence=number, transactional=True
            )
            computer.log.append(check(bytearray(batch), RULES, NOW_MS), 0, NOW_MS, verified=True)
            computer.log.append_marker(7, 0, commit=False, coordinator_epoch=0, leader_epoch=0, now_ms=NOW_MS)
        aborted = [(each.first_offset, each.last_offset) for each in computer.log.aborted(0, 100)]
        assert aborted == [(0, 1), (2, 3), (4, 5)]
        computer.kill()
        computer.start()
        computer.append(b"more" * 10)
        computer.log.flush(NOW_MS)
        computer.checkpoint()
        computer.crash()
        assert [(each.first_offset, each.last_offset) for each in computer.start().aborted(0, 100)] == aborted
