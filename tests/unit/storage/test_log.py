"""Appending to and reading from one log (F3, F7-F10, F12, F15, W03)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import scan_batches
from ottla.storage.config import LogConfig
from ottla.storage.log import UnexpectedOffset
from ottla.storage.segment_cache import SegmentCache
from tests.kit.storage import (
    NOW_MS,
    TP,
    MemoryDisk,
    all_offsets,
    append,
    batch,
    checked,
    new_log,
    open_dir,
    read_batches,
    records_of,
    reopen,
)


def test_f3_offsets_count_from_zero_and_do_not_change_over_a_restart() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk)
    assert [append(log, *range(1000, 1000 + count)) for count in (1, 3, 2)] == [0, 1, 4]
    before = [(record.offset, record.timestamp, record.value) for record in records_of(read_batches(log))]
    assert [offset for offset, _, _ in before] == list(range(6))
    data_dir.close()
    _, log = reopen(disk)
    assert [(record.offset, record.timestamp, record.value) for record in records_of(read_batches(log))] == before
    assert append(log, 1) == 6


def test_append_stamps_offset_and_epoch_and_reports_what_it_did() -> None:
    _, log = new_log(MemoryDisk())
    append(log, 1, 2)
    info = log.append(checked(5, 6, 7), 4, NOW_MS)
    assert (info.first_offset, info.last_offset, info.log_append_time_ms, info.log_start_offset) == (2, 4, -1, 0)
    header, data = read_batches(log)[1]
    assert (header.base_offset, header.leader_epoch, info.size_bytes) == (2, 4, len(data))
    assert log.size_bytes == sum(len(data) for _, data in read_batches(log))


def test_w03_read_from_the_middle_of_a_batch_returns_the_whole_batch() -> None:
    _, log = new_log(MemoryDisk())
    append(log, 1, 2, 3)
    append(log, 4)
    info = log.read(2, 1 << 20, log.log_end_offset, False)
    assert (info.ranges[0].position, info.size) == (0, log.size_bytes)


def test_w03_first_batch_comes_even_if_larger_than_asked_but_only_on_demand() -> None:
    _, log = new_log(MemoryDisk())
    append(log, 1, size=500)
    append(log, 2, size=500)
    assert log.read(0, 10, 2, False).ranges == []
    assert log.read(0, 10, 2, False).first_batch_too_large
    info = log.read(0, 10, 2, True)
    assert info.records_end_offset == 1
    assert info.size == len(read_batches(log)[0][1])


def test_read_ends_at_the_last_whole_batch_within_max_bytes() -> None:
    _, log = new_log(MemoryDisk(), LogConfig(index_interval_bytes=300))
    for _ in range(20):
        append(log, 1)
    size = len(read_batches(log)[0][1])
    for max_bytes in range(size, 6 * size):
        info = log.read(3, max_bytes, 20, True)
        assert info.size == max_bytes // size * size
        assert info.records_end_offset == 3 + max_bytes // size


def test_read_stops_before_the_high_watermark_given() -> None:
    _, log = new_log(MemoryDisk(), LogConfig(index_interval_bytes=150))
    for _ in range(10):
        append(log, 1, 2)
    for end_offset in range(0, 21, 2):
        for _ in range(2):  # found by search, then remembered
            info = log.read(0, 1 << 20, end_offset, True)
            assert info.records_end_offset == end_offset
            assert info.size == log.size_bytes // 10 * (end_offset // 2)
    assert log.read(0, 1 << 20, 5, True).records_end_offset >= 4  # a batch reaching over the end is not visible
    assert log.read(4, 1 << 20, 5, True).size == 0


def test_f12_read_outside_of_the_log_is_out_of_range_and_at_its_end_is_empty() -> None:
    _, log = new_log(MemoryDisk())
    append(log, 1)
    assert log.read(1, 100, 1, True).ranges == []
    for offset in (-1, 2):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100, 1, True)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_f9_rolls_when_segment_bytes_would_be_exceeded() -> None:
    disk = MemoryDisk()
    size = len(batch(1))
    _, log = new_log(disk, LogConfig(segment_bytes=3 * size))
    rolled = [log.append(checked(1), 0, NOW_MS).rolled for _ in range(7)]
    assert rolled == [False, False, False, True, False, False, True]
    assert log.local.bases == [0, 3, 6]
    names = disk.list(f"/data/{TP}")
    assert [name for name in names if name.endswith(".log")] == [f"{base:020d}.log" for base in (0, 3, 6)]
    assert all(f"{base:020d}{suffix}" in names for base in (0, 3, 6) for suffix in (".index", ".timeindex"))
    assert all_offsets(log) == list(range(7))


def test_f9_rolls_by_the_age_of_the_first_timestamp_less_jitter() -> None:
    _, log = new_log(MemoryDisk(), LogConfig(segment_ms=100))
    for timestamp in (1000, 1100, 1050, 1101, 1201):
        append(log, timestamp)
    assert log.local.bases == [0, 3]
    append(log, 1202)
    assert log.local.bases == [0, 3, 5]


def test_f9_records_without_timestamp_roll_by_the_age_of_the_segment() -> None:
    _, log = new_log(MemoryDisk(), LogConfig(segment_ms=100))
    append(log, -1, now_ms=NOW_MS)
    append(log, -1, now_ms=NOW_MS + 100)
    append(log, -1, now_ms=NOW_MS + 101)
    assert log.local.bases == [0, 2]


def test_f9_rolls_when_an_index_is_full() -> None:
    _, log = new_log(MemoryDisk(), LogConfig(index_interval_bytes=1, index_bytes_max=40))
    for timestamp in range(12):
        append(log, timestamp)
    # 40 bytes hold three entries of the time index, one kept free for the seal: two entries, so three batches
    assert log.local.bases == [0, 3, 6, 9]


def test_f9_rolls_when_an_offset_is_out_of_range_of_the_base() -> None:
    _, log = new_log(MemoryDisk())
    append(log, 1)
    far = (1 << 31) + 5
    log.append_as_follower(bytes(batch(1, base_offset=far, leader_epoch=0)), NOW_MS)
    assert log.local.bases == [0, far]
    assert all_offsets(log) == [0, far]
    assert log.read(1, 1000, log.log_end_offset, True).records_end_offset == far + 1


def test_records_larger_than_a_segment_are_refused_and_nothing_is_kept() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, LogConfig(segment_bytes=100))
    with pytest.raises(KafkaError) as caught:
        append(log, 1, size=200)
    assert caught.value.code == ErrorCode.RECORD_LIST_TOO_LARGE
    assert (log.log_end_offset, log.size_bytes, log.latest_epoch) == (0, 0, -1)


def test_what_a_leader_has_is_taken_whatever_the_size_of_a_segment() -> None:
    """The setting may be lower than when it was written there; a follower that refused it would never be in sync again. Nor may a
    transaction stay open because its marker is larger than a segment."""
    _, log = new_log(MemoryDisk(), LogConfig(segment_bytes=50))
    of_leader = b"".join(bytes(batch(1, base_offset=offset, leader_epoch=0)) for offset in (0, 1))
    log.append_as_follower(of_leader, NOW_MS)
    log.append_marker(7, 0, commit=True, coordinator_epoch=0, leader_epoch=0, now_ms=NOW_MS)
    assert (log.log_end_offset, list(log.local.bases)) == (3, [0, 2])


@pytest.mark.parametrize("truncates", [True, False])
def test_l06_failed_write_leaves_the_log_as_it_was(truncates: bool) -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk)
    append(log, 1, leader_epoch=3)
    before = (log.log_end_offset, log.size_bytes, log.latest_epoch, all_offsets(log))
    failing = ("write",) if truncates else ("write", "truncate")
    disk.broken = lambda kind, path: kind in failing and path.endswith(".log")
    with pytest.raises(OSError):
        append(log, 2, leader_epoch=4)
    disk.broken = lambda kind, path: False
    assert (log.log_end_offset, log.size_bytes, log.latest_epoch, all_offsets(log)) == before
    path = f"/data/{TP}/{0:020d}.log"
    assert (len(disk.content(path)) == log.size_bytes) == truncates
    assert append(log, 3, leader_epoch=4) == 1
    assert log.epochs.entries() == [(3, 0), (4, 1)]
    data_dir.close(clean=False)
    _, log = reopen(disk)
    assert [(record.offset, record.timestamp) for record in records_of(read_batches(log))] == [(0, 1), (1, 3)]


def test_failed_roll_changes_nothing() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, LogConfig(segment_bytes=len(batch(1))))
    append(log, 1)
    disk.fail(0, OSError(28, "No space left on device"))
    with pytest.raises(OSError, match="No space"):
        append(log, 2)
    assert log.local.bases == [0]
    assert append(log, 2) == 1
    assert all_offsets(log) == [0, 1]


def test_follower_keeps_offsets_and_epochs_and_notes_where_epochs_begin() -> None:
    _, log = new_log(MemoryDisk())
    data = b"".join(bytes(batch(1, 2, base_offset=base, leader_epoch=epoch)) for base, epoch in ((0, 2), (2, 2), (4, 5)))
    info = log.append_as_follower(data + data[:30], NOW_MS)
    assert (info.first_offset, info.last_offset, info.size_bytes) == (0, 5, len(data))
    assert log.epochs.entries() == [(2, 0), (5, 4)]
    assert b"".join(data for _, data in read_batches(log)) == data


def test_follower_refuses_what_does_not_continue_the_log_or_is_damaged() -> None:
    _, log = new_log(MemoryDisk())
    log.append_as_follower(bytes(batch(1, 2, base_offset=0, leader_epoch=0)), NOW_MS)
    with pytest.raises(UnexpectedOffset) as unexpected:
        log.append_as_follower(bytes(batch(1, base_offset=1, leader_epoch=0)), NOW_MS)
    assert (unexpected.value.first_offset, unexpected.value.last_offset) == (1, 1)
    damaged = batch(1, base_offset=2, leader_epoch=0)
    damaged[-1] ^= 1
    with pytest.raises(KafkaError) as caught:
        log.append_as_follower(bytes(damaged), NOW_MS)
    assert caught.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 2


def test_f15_appends_and_reads_do_the_same_work_in_a_long_log() -> None:
    """Calls to the disk, counted: in a log of 50 segments and in one of 500."""
    work = []
    for batches in (150, 1500):
        disk = MemoryDisk()
        _, log = new_log(disk, LogConfig(segment_bytes=3 * len(batch(1)), index_interval_bytes=50))
        for _ in range(batches):
            append(log, 1)
        counts = []
        for offset in (1, batches - 1):
            disk.reads, disk.opens = 0, 0
            log.read(offset, 1 << 20, log.log_end_offset, True)
            counts += [disk.reads, disk.opens]
        disk.steps.clear()
        append(log, 1)
        counts.append(len(disk.steps))
        work.append(counts)
    assert work[0] == work[1]


def test_f15_one_large_batch_at_a_random_place_costs_one_header() -> None:
    """Neither the batch before it nor its own records are read to find it, and it is not looked at twice."""
    disk = MemoryDisk()
    _, log = new_log(disk)
    for _ in range(50):
        append(log, 1, 2, size=10_000)
    for offset in (50, 51, 73):
        log.read(offset, 1, log.log_end_offset, True)  # opens the file
        disk.reads = disk.read_bytes = 0
        info = log.read(offset - 10, 1, log.log_end_offset, True)
        assert (info.records_end_offset, disk.reads) == ((offset - 10) // 2 * 2 + 2, 1)
        assert disk.read_bytes < 100


def test_a_tail_reader_asks_the_disk_nothing() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk)
    append(log, 1)
    offset = log.read(0, 1 << 20, 1, True).records_end_offset
    disk.reads = disk.opens = 0
    for _ in range(100):
        append(log, 1)
        offset = log.read(offset, 1 << 20, log.log_end_offset, True).records_end_offset
    assert (offset, disk.reads, disk.opens) == (101, 0, 0)


def test_sealed_segments_beyond_the_limit_hold_nothing_and_can_be_read_again() -> None:
    disk = MemoryDisk()
    data_dir, log = new_log(disk, LogConfig(segment_bytes=3 * len(batch(1)), index_interval_bytes=50))
    data_dir.close()
    cache = SegmentCache(segments_max=2)
    data_dir = open_dir(disk, cache=cache)
    (log,) = data_dir.load(lambda topic: LogConfig(segment_bytes=3 * len(batch(1)), index_interval_bytes=50), NOW_MS)
    for _ in range(30):
        append(log, 1)
    assert len(log.segments) == 10
    assert all_offsets(log) == all_offsets(log) == list(range(30))
    assert len(cache) <= 2
    assert sum(segment.indexes.entries_held > 0 for segment in log.segments) <= 3


def test_range_of_a_removed_segment_stays_readable_until_it_is_let_go() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, LogConfig(segment_bytes=len(batch(1)), file_delete_delay_ms=0))
    append(log, 1)
    append(log, 2)
    log.high_watermark = 2
    (part,) = log.read(0, 1000, 2, True).ranges
    expected = part.file.read(part.position, part.size)
    log.advance_log_start(1)
    for path in log.take_deleted(NOW_MS):
        disk.remove(path)
    assert part.file.read(part.position, part.size) == expected


@given(
    sizes=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 300)), min_size=1, max_size=40),
    interval=st.integers(0, 600),
    segment_bytes=st.integers(1500, 6000),
    max_bytes=st.integers(1, 3000),
)
@settings(max_examples=60, deadline=None)
def test_f10_reads_equal_a_linear_scan(sizes: list[tuple[int, int]], interval: int, segment_bytes: int, max_bytes: int) -> None:
    check_against_a_scan(sizes, interval, segment_bytes, max_bytes)


@given(
    sizes=st.lists(
        st.tuples(st.integers(1, 3), st.one_of(st.integers(0, 3000), st.integers(4000, 12_000))), min_size=1, max_size=30
    ),
    interval=st.sampled_from([0, 4096, 20_000]),
    segment_bytes=st.sampled_from([40_000, 1 << 20]),
    max_bytes=st.integers(1, 60_000),
)
@settings(max_examples=60, deadline=None)
def test_f10_reads_equal_a_linear_scan_where_batches_are_larger_than_what_is_read_at_once(
    sizes: list[tuple[int, int]], interval: int, segment_bytes: int, max_bytes: int
) -> None:
    check_against_a_scan(sizes, interval, segment_bytes, max_bytes)


def check_against_a_scan(sizes: list[tuple[int, int]], interval: int, segment_bytes: int, max_bytes: int) -> None:
    disk = MemoryDisk()
    _, log = new_log(disk, LogConfig(index_interval_bytes=interval, segment_bytes=segment_bytes))
    for count, size in sizes:
        append(log, *range(count), size=size)
    expected = []
    for base in log.local.bases:
        infos, _ = scan_batches(disk.content(f"/data/{TP}/{base:020d}.log"))
        expected += [(base, info.position, info) for info in infos]
    for offset in range(log.log_end_offset):
        base, position, first = next(item for item in expected if item[2].last_offset >= offset)
        info = log.read(offset, max_bytes, log.log_end_offset, True)
        (part,) = info.ranges
        assert (part.file.path.rpartition("/")[2], part.position) == (f"{base:020d}.log", position)
        same = [item for item in expected if item[0] == base and item[1] >= position]
        fitting = [item[2].end - position for item in same if item[2].end - position <= max_bytes]
        assert part.size == (max(fitting) if fitting else first.size)
