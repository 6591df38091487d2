"""A search by time that may do little at once comes to the same answer in several steps (W06, F23)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.compression import GZIP, ZSTD
from ottla.storage.config import LogConfig
from ottla.storage.log import Log
from ottla.storage.results import OffsetByTime
from ottla.storage.time_lookup import Unfinished
from tests.kit.storage import MemoryDisk, append, new_log

STEPS_MAX = 500


def in_steps(log: Log, timestamp_ms: int, inline_bytes_max: int) -> tuple[OffsetByTime | None, int]:
    """The answer, and how often the search had to be taken up again."""
    next_offset = 0
    for steps in range(STEPS_MAX):
        try:
            return log.offset_for_timestamp(timestamp_ms, next_offset, inline_bytes_max), steps
        except Unfinished as unfinished:
            search = unfinished
        found = search.look(lambda: None) if search.look is not None else None
        if found is not None:
            return found, steps + 1
        assert search.next_offset > next_offset, "each step leads further"
        next_offset = search.next_offset
    raise AssertionError("no end")


@pytest.mark.parametrize("codec", [GZIP, ZSTD])
def test_f23_what_unpacks_to_a_lot_is_left_to_others_and_found_by_them(codec: int) -> None:
    _, log = new_log(MemoryDisk())
    append(log, 5, 6)
    append(log, 10, 30, 20, size=5000, codec=codec)
    append(log, 40)
    assert log.offset_for_timestamp(6, 0, 1000) == OffsetByTime(6, 1, 0), "small: at once"
    with pytest.raises(Unfinished) as left:
        log.offset_for_timestamp(15, 0, 1000)
    assert left.value.next_offset == 5
    assert left.value.look is not None
    assert left.value.look(lambda: None) == OffsetByTime(30, 3, 0)
    assert left.value.look(lambda: None) == OffsetByTime(30, 3, 0), "as often as one likes"
    assert log.offset_for_timestamp(15, left.value.next_offset, 1000) == OffsetByTime(40, 5, 0)
    assert log.offset_for_timestamp(15, 0, 1 << 20) == log.offset_for_timestamp(15) == OffsetByTime(30, 3, 0)


def test_f23_a_large_batch_is_not_even_read_also_if_nothing_is_packed() -> None:
    disk = MemoryDisk()
    _, log = new_log(disk)
    append(log, 10, 30, 30, size=50_000)
    before = disk.read_bytes
    with pytest.raises(Unfinished) as left:
        log.offset_of_max_timestamp(1000)
    assert disk.read_bytes - before < 50_000
    assert left.value.look is not None
    assert left.value.look(lambda: None) == OffsetByTime(30, 1, 0) == log.offset_of_max_timestamp()


def test_a_search_from_an_offset_inside_of_a_batch_finds_what_is_behind_it() -> None:
    _, log = new_log(MemoryDisk())
    append(log, 10, 30, 20, 40, size=3000, codec=GZIP)
    assert log.offset_for_timestamp(15, 2) == OffsetByTime(20, 2, 0)
    with pytest.raises(Unfinished) as left:
        log.offset_for_timestamp(25, 2, 1000)
    assert left.value.look is not None
    assert left.value.look(lambda: None) == OffsetByTime(40, 3, 0)


@pytest.mark.parametrize("interval", [0, 300, 1 << 20])
def test_a_long_way_over_headers_is_gone_in_steps(interval: int) -> None:
    """One old large timestamp, then many small ones: the time index says nothing of them."""
    _, log = new_log(MemoryDisk(), LogConfig(index_interval_bytes=interval))
    append(log, 500)
    for _ in range(60):
        append(log, 7)
    append(log, 501)
    found, steps = in_steps(log, 501, 1000)
    assert found == log.offset_for_timestamp(501) == OffsetByTime(501, 61, 0)
    assert steps > 3


@given(
    timestamps=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=4), min_size=1, max_size=20),
    codec=st.sampled_from([0, GZIP]),
    inline_bytes_max=st.integers(0, 700),
    start=st.integers(0, 10),
)
@settings(max_examples=30, deadline=None)
def test_w06_in_steps_or_at_once_is_the_same(timestamps: list[list[int]], codec: int, inline_bytes_max: int, start: int) -> None:
    _, log = new_log(MemoryDisk(), LogConfig(segment_bytes=600, index_interval_bytes=200))
    for stamps in timestamps:
        append(log, *stamps, codec=codec)
    log.high_watermark = log.log_end_offset
    log.advance_log_start(min(start, log.log_end_offset))
    for target in range(32):
        assert in_steps(log, target, inline_bytes_max)[0] == log.offset_for_timestamp(target)
