"""What goes from the start of a log, and when (F11, L10)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.errors import ErrorCode, KafkaError
from ottla.storage.config import LogConfig
from ottla.storage.log import Log
from tests.kit.storage import NOW_MS, TP, MemoryDisk, all_offsets, append, batch, new_log, reopen

SIZE = len(batch(1))
DAY_MS = 86_400_000


def config(**changes: Any) -> LogConfig:
    """Segments of two batches."""
    return LogConfig(segment_bytes=2 * SIZE, **{"retention_ms": -1, **changes})


def log_of(settings: LogConfig, timestamps: list[int]) -> tuple[MemoryDisk, Log]:
    disk = MemoryDisk()
    _, log = new_log(disk, settings)
    for timestamp in timestamps:
        append(log, timestamp)
    log.high_watermark = log.log_end_offset
    return disk, log


def deleted_names(disk: MemoryDisk) -> list[str]:
    return [name for name in disk.list(f"/data/{TP}") if name.endswith(".deleted")]


def test_f11_by_time_goes_by_the_largest_timestamp_of_a_segment() -> None:
    old, fresh = NOW_MS - DAY_MS - 1, NOW_MS - DAY_MS
    _, log = log_of(config(retention_ms=DAY_MS), [old, old, old, fresh, old, old, fresh, fresh])
    assert log.apply_retention(NOW_MS) == [0]  # the second segment holds one fresh record, and those behind it wait for it
    assert log.log_start_offset == 2
    assert all_offsets(log) == [2, 3, 4, 5, 6, 7]
    assert log.apply_retention(NOW_MS + 1) == [2, 4, 6]
    assert (log.log_start_offset, log.log_end_offset, list(log.local.bases)) == (8, 8, [8])


def test_l10_the_active_segment_goes_only_after_a_roll() -> None:
    old = NOW_MS - DAY_MS - 1
    disk, log = log_of(config(retention_ms=DAY_MS), [old])
    assert log.apply_retention(NOW_MS) == [0]
    assert (log.log_start_offset, log.log_end_offset, list(log.local.bases)) == (1, 1, [1])
    assert disk.exists(f"/data/{TP}/{1:020d}.log")
    assert append(log, NOW_MS) == 1
    assert log.apply_retention(NOW_MS) == []


def test_an_empty_active_segment_is_never_deleted() -> None:
    _, log = log_of(config(retention_ms=0, retention_bytes=0), [])
    assert log.apply_retention(NOW_MS) == []
    assert log.local.bases == [0]


def test_f11_by_size_whole_segments_go_while_the_rest_still_exceeds() -> None:
    for retention_bytes, expected in (
        (9 * SIZE, []),
        (8 * SIZE, []),
        (7 * SIZE, []),
        (6 * SIZE, [0]),
        (3 * SIZE, [0, 2]),
        (SIZE, [0, 2, 4]),
    ):
        _, log = log_of(config(retention_bytes=retention_bytes), [1] * 8)
        assert log.apply_retention(NOW_MS) == expected
        assert log.size_bytes == (8 - 2 * len(expected)) * SIZE


def test_nothing_at_or_above_the_high_watermark_goes() -> None:
    _, log = log_of(config(retention_ms=0), [1] * 8)
    log.high_watermark = 5
    assert log.apply_retention(NOW_MS) == [0, 2]
    assert log.log_start_offset == 4


def test_compacted_logs_let_go_only_what_is_below_their_start() -> None:
    _, log = log_of(config(retention_ms=0, retention_bytes=0, cleanup_policy=frozenset({"compact"})), [1] * 8)
    assert log.apply_retention(NOW_MS) == []
    log.log_start_offset = 5
    assert log.apply_retention(NOW_MS) == [0, 2]


def test_records_without_timestamps_count_from_the_segment_s_creation() -> None:
    _, log = log_of(config(retention_ms=1000), [-1, -1, -1])
    assert log.apply_retention(NOW_MS + 1000) == []
    assert log.apply_retention(NOW_MS + 1001) == [0, 2]


def test_l10_delete_records_to_any_offset_up_to_the_high_watermark() -> None:
    for target in range(9):
        _, log = log_of(config(), [1] * 8)
        log.epochs.assign(3, 8)
        log.advance_log_start(target)
        assert log.log_start_offset == target
        whole = 2 * min(target // 2, 3)
        assert log.local.bases == list(range(whole, 8, 2))
        assert log.epochs.entries()[0] == ((0, target) if target < 8 else (3, 8))
        if target:
            with pytest.raises(KafkaError) as caught:
                log.read(target - 1, 1000, 8, True)
            assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        log.advance_log_start(0)  # never back
        assert log.log_start_offset == target


def test_l10_delete_records_above_the_high_watermark_is_out_of_range() -> None:
    _, log = log_of(config(), [1] * 8)
    log.high_watermark = 5
    for target in (6, -1):
        with pytest.raises(KafkaError) as caught:
            log.advance_log_start(target)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.log_start_offset == 0


def test_l10_log_start_survives_a_restart_clean_or_not() -> None:
    for clean in (True, False):
        disk = MemoryDisk()
        data_dir, log = new_log(disk, config())
        for _ in range(8):
            append(log, 1)
        log.high_watermark = 8
        log.advance_log_start(5)
        data_dir.write_checkpoints()
        data_dir.close(clean)
        _, log = reopen(disk, config())
        assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (5, 8, 8)


def test_f11_files_are_renamed_first_and_handed_out_for_removal_after_the_delay() -> None:
    disk, log = log_of(config(file_delete_delay_ms=60_000), [1] * 5)
    log.advance_log_start(4)
    names = deleted_names(disk)
    of_segments = [f"{base:020d}{suffix}.deleted" for base in (0, 2) for suffix in (".log", ".index", ".timeindex")]
    assert names == sorted([*of_segments, f"{2:020d}.snapshot.deleted"])
    assert log.take_deleted(NOW_MS) == []
    assert log.take_deleted(NOW_MS + 59_999) == []
    due = log.take_deleted(NOW_MS + 60_000)
    assert sorted(due) == [f"/data/{TP}/{name}" for name in names]
    assert log.take_deleted(NOW_MS + 60_000) == []


def test_files_still_waiting_for_removal_go_when_the_log_closes() -> None:
    disk, log = log_of(config(), [1] * 5)
    log.advance_log_start(4)
    log.close()
    assert deleted_names(disk) == []
