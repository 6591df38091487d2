"""Where leader epochs began (KIP-101, KIP-279; R05-R07 rest on it)."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ottla.storage.epoch_cache import UNDEFINED, EpochCache
from ottla.types import OffsetAndEpoch
from tests.kit.storage import MemoryDisk

PATH = "/data/orders-0/leader-epoch-checkpoint"


def cache_of(*entries: tuple[int, int]) -> EpochCache:
    cache = EpochCache(MemoryDisk(), PATH)
    for epoch, start in entries:
        cache.assign(epoch, start)
    return cache


def test_r07_answer_is_the_largest_epoch_not_above_and_its_end() -> None:
    cache = cache_of((2, 10), (4, 30), (7, 55))
    end = 80
    assert cache.end_offset_for(7, end) == OffsetAndEpoch(80, 7)
    assert cache.end_offset_for(6, end) == OffsetAndEpoch(55, 4)
    assert cache.end_offset_for(5, end) == OffsetAndEpoch(55, 4)
    assert cache.end_offset_for(4, end) == OffsetAndEpoch(55, 4)
    assert cache.end_offset_for(3, end) == OffsetAndEpoch(30, 2)
    assert cache.end_offset_for(2, end) == OffsetAndEpoch(30, 2)


def test_r07_an_epoch_older_than_all_known_ends_where_the_first_known_begins() -> None:
    assert cache_of((2, 10), (4, 30)).end_offset_for(0, 80) == OffsetAndEpoch(10, 0)


def test_r07_undefined_for_a_newer_epoch_none_at_all_or_an_empty_cache() -> None:
    cache = cache_of((2, 10))
    assert cache.end_offset_for(3, 80) == UNDEFINED == OffsetAndEpoch(-1, -1)
    assert cache.end_offset_for(-1, 80) == UNDEFINED
    assert cache_of().end_offset_for(0, 80) == UNDEFINED


def test_assigning_drops_entries_of_a_former_history() -> None:
    assert cache_of((2, 10), (4, 30), (7, 55), (5, 40)).entries() == [(2, 10), (4, 30), (5, 40)]
    assert cache_of((2, 10), (4, 30), (5, 30)).entries() == [(2, 10), (5, 30)]
    assert cache_of((2, 10), (4, 30), (4, 20)).entries() == [(2, 10), (4, 20)]
    assert cache_of((2, 10), (2, 15)).entries() == [(2, 10)]


def test_truncation_at_the_end_and_at_the_start() -> None:
    cache = cache_of((2, 10), (4, 30), (7, 55))
    cache.truncate_end(56)
    assert cache.latest == 7
    cache.truncate_end(55)
    assert cache.entries() == [(2, 10), (4, 30)]
    cache.truncate_start(9)
    assert cache.entries() == [(2, 10), (4, 30)]
    cache.truncate_start(20)
    assert cache.entries() == [(2, 20), (4, 30)]
    cache.truncate_start(30)
    assert cache.entries() == [(4, 30)]
    cache.truncate_start(50)
    assert cache.entries() == [(4, 50)]
    cache.truncate_end(0)
    assert (cache.entries(), cache.latest) == ([], -1)


def test_epoch_at_an_offset() -> None:
    cache = cache_of((2, 10), (4, 30))
    assert [cache.epoch_at(offset) for offset in (9, 10, 29, 30, 1000)] == [-1, 2, 2, 4, 4]


def test_file_is_kafka_s_and_comes_back() -> None:
    disk = MemoryDisk()
    cache = EpochCache(disk, PATH)
    cache.assign(0, 0)
    cache.assign(3, 17)
    cache.assign(9, 40)
    cache.write(40)
    assert disk.content(PATH) == b"0\n2\n0 0\n3 17\n"
    assert EpochCache.load(disk, PATH).entries() == [(0, 0), (3, 17)]
    steps = len(disk.steps)
    cache.write(40)
    assert len(disk.steps) == steps, "nothing new, nothing written"
    cache.write(41)
    assert EpochCache.load(disk, PATH).entries() == [(0, 0), (3, 17), (9, 40)]


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 50)), max_size=20), st.integers(0, 60), st.integers(0, 22))
def test_entries_always_grow_and_answers_agree_with_them(assigned: list[tuple[int, int]], cut: int, asked: int) -> None:
    cache = cache_of(*assigned)
    cache.truncate_end(cut)
    entries = cache.entries()
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(entries))
    assert all(start < cut for _, start in entries)
    answer = cache.end_offset_for(asked, 60)
    if answer != UNDEFINED:
        assert answer.leader_epoch <= asked
        later = [start for epoch, start in entries if epoch > asked]
        assert answer.offset == (min(later) if later else 60)
