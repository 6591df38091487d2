"""A log moves from one volume to another, and power may fail at any step (F6): nothing flushed is lost, nothing comes twice."""

from __future__ import annotations

import random

import pytest

from ottla.errors import KafkaError
from ottla.sim.kernel.disk import SimDisk
from ottla.sim.kernel.process import Process, ProcessDied
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir, DataDirRefused, find_leftover_copies
from ottla.storage.log import Log
from ottla.storage.replica_copy import ReplicaCopy, forget_swap
from tests.kit.compaction import compact
from tests.kit.storage import (
    NOW_MS,
    TOPIC_ID,
    TP,
    MemoryDisk,
    all_offsets,
    append,
    batch,
    checked,
    new_log,
    open_dir,
    read_batches,
    seeded_random,
)

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=200)


def copy_all(copy: ReplicaCopy, chunk_bytes: int = 500) -> int:
    """Returns the number of steps."""
    for count in range(1, 1000):
        step = copy.plan(chunk_bytes)
        copy.perform(step, NOW_MS)
        if step.reaches_end:
            return count
    raise AssertionError("the copy does not end")


def same(one: Log, other: Log) -> None:
    assert [data for _, data in read_batches(one)] == [data for _, data in read_batches(other)]
    assert (one.log_start_offset, one.log_end_offset) == (other.log_start_offset, other.log_end_offset)


def two_dirs(config: LogConfig = CONFIG) -> tuple[DataDir, DataDir, Log, Log, MemoryDisk]:
    disk = MemoryDisk()
    source_dir, source = new_log(disk, config)
    target_dir = open_dir(disk, "/other")
    target_dir.load(lambda topic: config, NOW_MS)
    return source_dir, target_dir, source, target_dir.make_future_log(TP, TOPIC_ID, config, NOW_MS), disk


def test_a_copy_has_the_same_batches_and_epochs_and_follows_what_is_appended() -> None:
    _, _, source, future, disk = two_dirs()
    for epoch in range(3):
        for _ in range(20):
            append(source, 1, 2, 3, leader_epoch=epoch, size=50)
    copy = ReplicaCopy(disk, source, future)
    assert copy.lag == 180
    assert copy_all(copy) > 10
    append(source, 1, leader_epoch=4)
    assert copy.lag == 1
    copy_all(copy)
    same(source, future)
    source.epochs.assign(7, source.log_end_offset)
    copy.take_over()
    assert future.epochs.entries() == source.epochs.entries()
    assert future.end_offset_for_epoch(7) == source.end_offset_for_epoch(7)
    assert not copy.flushed_enough or source.recovery_point == 0
    copy.flush_and_mark()
    assert copy.flushed_enough


def test_t10_where_a_transaction_wanted_to_begin_is_known_to_the_copy() -> None:
    _, _, source, future, disk = two_dirs()
    append(source, 1)
    source.producers.attempt(7, 0, 4)
    copy = ReplicaCopy(disk, source, future)
    copy_all(copy)
    copy.take_over()
    behind = checked(1, producer_id=7, producer_epoch=0, base_sequence=6, transactional=True)
    with pytest.raises(KafkaError, match="is at sequence 4"):
        future.append(behind, 0, NOW_MS, verified=True)


def test_a_log_that_starts_in_the_middle_of_a_batch() -> None:
    _, _, source, future, disk = two_dirs()
    for _ in range(30):
        append(source, 1, 2, 3, size=100)
    source.high_watermark = source.log_end_offset
    source.advance_log_start(46)
    copy = ReplicaCopy(disk, source, future)
    copy_all(copy)
    same(source, future)
    assert all_offsets(future)[0] == 45, "the batch is kept whole; readers begin at the log start"


def test_retention_passes_the_copy() -> None:
    _, _, source, future, disk = two_dirs()
    for _ in range(40):
        append(source, 1, size=200)
    copy = ReplicaCopy(disk, source, future)
    copy.perform(copy.plan(500), NOW_MS)
    source.high_watermark = source.log_end_offset
    source.advance_log_start(30)
    copy_all(copy)
    same(source, future)
    source.advance_log_start(40)
    copy_all(copy)
    assert (future.log_start_offset, future.log_end_offset) == (40, 40)


def test_a_source_that_is_cut_at_its_end_is_copied_anew() -> None:
    _, _, source, future, disk = two_dirs()
    for _ in range(20):
        append(source, 1, 2, size=100)
    copy = ReplicaCopy(disk, source, future)
    copy_all(copy)
    source.truncate_to(11)
    append(source, 5, 6, leader_epoch=1)
    copy_all(copy)
    same(source, future)
    source.truncate_to(source.log_end_offset - 1)
    copy_all(copy)
    copy.take_over()
    assert future.log_end_offset == source.log_end_offset, "also where the last offsets belong to no record any more"


def test_a_source_that_is_compacted_meanwhile_is_copied_anew() -> None:
    """Else a tombstone that went from the part not yet copied would leave its record alive in the part that was."""
    _, _, source, future, disk = two_dirs()
    for number in range(30):
        append(source, 1, size=100, key=b"%d" % (number % 3))
    copy = ReplicaCopy(disk, source, future)
    copy.perform(copy.plan(1000), NOW_MS)
    assert future.log_end_offset > 0
    source.high_watermark = source.log_end_offset
    compacted = LogConfig(segment_bytes=2000, cleanup_policy=frozenset({"compact"}), min_cleanable_dirty_ratio=0.01)
    source.config = compacted
    compact(disk, source)
    assert len(all_offsets(source)) < 30
    assert copy.plan().restart_at == 0
    copy_all(copy)
    assert all_offsets(future) == all_offsets(source)


def test_a_batch_larger_than_the_segments_of_today() -> None:
    _, _, source, future, disk = two_dirs(LogConfig())
    append(source, 1, size=5000)
    source.config = future.config = CONFIG
    copy = ReplicaCopy(disk, source, future)
    copy_all(copy)
    same(source, future)


def test_a_copy_that_knows_more_than_a_source_that_lost_its_end() -> None:
    _, _, source, future, disk = two_dirs()
    for _ in range(10):
        append(source, 1)
    copy_all(ReplicaCopy(disk, source, future))
    source.truncate_to(6)
    append(source, 2, 2, leader_epoch=3)
    copy = ReplicaCopy(disk, source, future)
    assert future.log_end_offset == 6
    copy_all(copy)
    same(source, future)


def test_two_copies_without_a_mark_are_refused_an_empty_one_is_not() -> None:
    source_dir, target_dir, source, future, disk = two_dirs()
    append(source, 1)
    copy = ReplicaCopy(disk, source, future)
    target_dir.promote(TP)
    assert find_leftover_copies([source_dir, target_dir]) == [], "the other one is empty"
    copy_all(copy)
    assert find_leftover_copies([source_dir, target_dir]) == [(source_dir, source)], "swapped: it is the whole one"
    assert find_leftover_copies([target_dir, source_dir]) == [(source_dir, source)]
    target_dir.swapped.clear()
    with pytest.raises(DataDirRefused, match="both hold records"):
        find_leftover_copies([source_dir, target_dir])


class Volumes:
    """Two volumes with a disk each, and one log that wanders between them. Dies now and then."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.disks = [SimDisk(self.rng), SimDisk(self.rng)]
        self.appended: list[bytes] = []
        """One batch of one record for each offset."""
        self.flushed = self.expected = 0
        self.checked = False
        self.swaps = self.duplicates = 0

    def live(self, crash_in: int | None) -> None:
        """Start; go on with a move or begin one; append and flush all the while."""
        process = Process("broker")
        self.checked = False
        if crash_in is not None:
            self.rng.choice(self.disks).crash_after(crash_in, process.die)
        try:
            self._live(process)
        except ProcessDied:
            pass
        power_lost = self.rng.random() < 0.7
        process.die()
        for disk in self.disks:
            disk.forget_crash_point()
            if power_lost:
                disk.crash()
            else:
                disk.kill(process)
        if power_lost:
            self.expected = self.flushed
        elif self.checked:
            self.expected = max(self.flushed, len(self.appended) - 1)  # only the append that was cut short may be missing

    def _live(self, process: Process) -> None:
        rng = self.rng
        chance = seeded_random(rng.randrange(1 << 30))
        dirs = [
            DataDir.open(disk.view(process), f"/{name}", 1, "cluster", chance)
            for disk, name in zip(self.disks, "ab", strict=True)
        ]
        for data_dir in dirs:
            data_dir.load(lambda topic: CONFIG, NOW_MS)
        for data_dir, _ in find_leftover_copies(dirs):
            data_dir.delete_log(TP)
            self.duplicates += 1
        # An empty one beside the other is what a creation left behind that a crash interrupted.
        source_dir = max(dirs, key=lambda each: each.logs[TP].log_end_offset if TP in each.logs else -1)
        log = source_dir.create_log(TP, TOPIC_ID, CONFIG, NOW_MS)
        self._check(log)
        for data_dir in dirs:
            if data_dir is not source_dir and TP in data_dir.logs:
                data_dir.delete_log(TP)
        target_dir = dirs[1 - dirs.index(source_dir)]
        for data_dir in dirs:
            if TP in data_dir.swapped:
                data_dir.write_checkpoints()
                forget_swap(data_dir._disk, log)
        if TP in source_dir.futures:
            source_dir.drop_future(TP)
        if TP not in target_dir.futures:
            target_dir.make_future_log(TP, TOPIC_ID, CONFIG, NOW_MS)
        copy = ReplicaCopy(target_dir._disk, log, target_dir.futures[TP])
        settled = False
        while True:
            for _ in range(rng.randrange(4)):
                self._append(log)
            if rng.random() < 0.2:
                self._flush(log)
            step = copy.plan(rng.choice((200, 1000)))
            if not step.reaches_end or step.restart_at is not None:
                copy.perform(step, NOW_MS)
            elif not settled:
                copy.perform(step, NOW_MS)
                copy.flush_and_mark()
                settled = True
            else:
                copy.perform(step, NOW_MS)
                if copy.flushed_enough:
                    break
                copy.flush_and_mark()
        copy.take_over()
        moved = target_dir.promote(TP)
        source_dir.delete_log(TP)
        self.swaps += 1
        for _ in range(rng.randrange(4)):
            self._append(moved)
            if rng.random() < 0.3:
                self._flush(moved)
        target_dir.write_checkpoints()
        source_dir.write_checkpoints()
        forget_swap(target_dir._disk, moved)
        self._append(moved)
        self._flush(moved)

    def _append(self, log: Log) -> None:
        number = len(self.appended)
        assert log.log_end_offset == number
        self.appended.append(bytes(batch(number + 1, size=self.rng.choice((10, 300)), base_offset=number, leader_epoch=0)))
        log.append_as_follower(self.appended[-1], NOW_MS)
        log.high_watermark = log.log_end_offset

    def _flush(self, log: Log) -> None:
        end = log.log_end_offset
        log.flush(NOW_MS)
        self.flushed = max(self.flushed, end)

    def _check(self, log: Log) -> None:
        found = [data for _, data in read_batches(log)]
        assert len(found) >= self.expected, f"{self.expected} records must be there, {len(found)} came back"
        assert found == self.appended[: len(found)]
        assert log.log_end_offset == len(found)
        del self.appended[len(found) :]
        self.checked = True
        log.high_watermark = log.log_end_offset


def test_f6_power_fails_at_any_step_of_a_move() -> None:
    swaps = duplicates = 0
    for seed in range(60):
        volumes = Volumes(seed)
        for _ in range(6):
            volumes.live(volumes.rng.randrange(1, 60))
        volumes.live(None)
        volumes.live(None)
        assert volumes.swaps >= 2
        swaps += volumes.swaps
        duplicates += volumes.duplicates
    assert duplicates > 0, "no crash fell between the two renames: the test lost its teeth"
