"""Following the headers of a segment: `index_file` judges and counts as `scan_file` does, only faster."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.batch import BatchInfo
from ottla.storage.config import INT64_MAX
from ottla.storage.offset_index import OffsetIndex
from ottla.storage.scan import CHUNK_BYTES, LARGE_BYTES, IndexBuilder, index_file, scan_file
from ottla.storage.time_index import TimeIndex
from tests.kit.storage import MemoryDisk, batch

BASE = 1000
INTERVAL = 150
Made = tuple[list[tuple[int, int]], list[tuple[int, int]], tuple[int, int, int, int]]


def slowly(data: bytes) -> Made:
    index, time_index = OffsetIndex(BASE), TimeIndex(BASE)
    good = entry_at = 0
    largest = (-1, BASE)

    def account(info: BatchInfo) -> None:
        nonlocal good, entry_at, largest
        if info.max_timestamp > largest[0] and info.record_count:
            largest = (info.max_timestamp, info.last_offset)
        if good - entry_at > INTERVAL:
            index.append(info.last_offset, good)
            time_index.append(*largest)
            entry_at = good
        good += info.size

    disk = MemoryDisk()
    disk.put("/log", data)
    assert scan_file(disk.open("/log"), len(data), BASE, INT64_MAX, False, account) == good
    return index.entries(), time_index.entries(), (good, entry_at, *largest)


def quickly(data: bytes) -> Made:
    disk = MemoryDisk()
    disk.put("/log", data)
    built = IndexBuilder(BASE, INTERVAL)
    good = index_file(disk.open("/log"), len(data), BASE, built)
    return (
        built.index.entries(),
        built.time_index.entries(),
        (good, built.entry_at, built.max_timestamp, built.offset_of_max),
    )


def log_of(batches: list[tuple[int, int, int, int]]) -> bytearray:
    """Of (gap before it, records, timestamp, bytes of a value)."""
    data = bytearray()
    offset = BASE
    for gap, records, timestamp, size in batches:
        one = batch(*[timestamp] * records, size=size)
        offset += gap
        struct.pack_into(">q", one, 0, offset)
        offset += records
        data += one
    return data


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from((0, 0, 0, 3)), st.integers(1, 3), st.integers(-1, 50), st.integers(0, 200)), max_size=20),
    st.lists(st.tuples(st.integers(0, 19), st.integers(0, 60), st.integers(0, 255)), max_size=2),
    st.integers(0, 80),
)
def test_whatever_the_headers_say_both_say_the_same(
    batches: list[tuple[int, int, int, int]], damage: list[tuple[int, int, int]], cut: int
) -> None:
    data = log_of(batches)
    starts = [len(log_of(batches[:number])) for number in range(len(batches))]
    for number, at, byte in damage:
        if number < len(batches):
            data[starts[number] + at] = byte
    whole = bytes(data[: max(len(data) - cut, 0)])
    assert quickly(whole) == slowly(whole)


@pytest.mark.parametrize("size", [LARGE_BYTES - 100, LARGE_BYTES + 100, CHUNK_BYTES + 1])
def test_batches_may_be_larger_than_what_is_read_at_once(size: int) -> None:
    batches = [(0, 1, number, size if number % 3 else 100) for number in range(2 * CHUNK_BYTES // size + 7)]
    data = bytes(log_of(batches))
    assert quickly(data) == slowly(data)
    assert quickly(data[:-1]) == slowly(data[:-1])
