"""The inner loops of compaction: the two walks, and timestamps moved to another base."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import MalformedInput
from ottla.records.batch import read_batch_header
from ottla.records.clean import Filter, Put, rebase
from ottla.records.key_map import SLOTS_MIN, KeyMap
from ottla.records.record import Record, build_batch, read_records, records_section

FAR = 1 << 40
T = 1_700_000_000_000

keys = st.one_of(st.none(), st.binary(max_size=3), st.binary(min_size=100, max_size=300))
values = st.one_of(st.none(), st.binary(max_size=200))
headers = st.lists(st.tuples(st.text(max_size=3), st.one_of(st.none(), st.binary(max_size=5))), max_size=2)
fields = st.tuples(keys, values, headers, st.integers(-5_000_000_000, 5_000_000_000).map(lambda delta: T + delta))
sections = st.lists(fields, min_size=1, max_size=20)


def section_of(records: list[tuple[object, ...]]) -> bytes:
    batch = build_batch(records)  # type: ignore[arg-type]
    return records_section(batch, read_batch_header(batch, 0))


def records_in(section: bytes, count: int, base_offset: int, base_timestamp: int) -> list[Record]:
    batch = bytearray(build_batch([(b"k", b"v", (), base_timestamp)]))
    info = read_batch_header(batch, 0)
    data = bytes(batch[:61]) + section
    info.size, info.record_count, info.base_offset = len(data), count, base_offset
    return read_records(data, info)


def put_all(table: KeyMap, section: bytes, base_offset: int, start_offset: int, slice_bytes: int = FAR) -> Put:
    put = Put(section, base_offset, start_offset)
    while not put.is_done:
        before = put.position
        assert put.advance(table, slice_bytes)
        assert put.position > before
    return put


@settings(max_examples=60)
@given(sections, st.integers(0, 25), st.integers(1, 200))
def test_indexing_puts_every_key_from_the_start_offset_on(
    records: list[tuple[object, ...]], start: int, slice_bytes: int
) -> None:
    section = section_of(records)
    table = KeyMap(SLOTS_MIN, 100, 0)
    assert put_all(table, section, 10, start, slice_bytes).records == len(records)
    expected = {key: 10 + index for index, (key, *_) in enumerate(records) if key is not None and 10 + index >= start}
    assert {key: table.get(key) for key in expected} == expected  # type: ignore[arg-type]
    assert table.size == len(expected)
    put = [(10 + index, key) for index, (key, *_) in enumerate(records) if key is not None and 10 + index >= start]
    assert [offset for offset in range(40) if table.replaced.has(offset)] == [
        offset for offset, key in put if offset != expected[key]
    ]
    assert table.odd.has(10) == any(key is None or value is None for key, value, *_ in records)


def test_indexing_stops_where_the_table_is_full_and_knows_how_far_it_came() -> None:
    section = section_of([(b"%d" % number, b"v", (), T) for number in range(50)])
    table = KeyMap(SLOTS_MIN, 20, 0)
    assert not Put(section, 0, 0).advance(table, FAR)
    assert (table.size, table.latest_offset) == (20, 19)


@settings(max_examples=80)
@given(
    sections,
    st.sets(st.integers(0, 19)),
    st.integers(0, 20),
    st.integers(-1, 20),
    st.sampled_from([0, 7, FAR]),
    st.booleans(),
    st.integers(1, 200),
)
def test_the_filter_keeps_what_no_later_record_replaced(
    records: list[tuple[object, ...]],
    replaced: set[int],
    first_dirty: int,
    latest: int,
    known: int,
    keep_tombstones: bool,
    slice_bytes: int,
) -> None:
    """Some records are before what was indexed; of some of the indexed ones there is no bit that says whether they stay."""
    section = section_of(records)
    everything = records_in(section, len(records), 0, records[0][3])  # type: ignore[arg-type]
    table = KeyMap(SLOTS_MIN, 100, first_dirty, min(known, 1000))
    put_all(table, section, 0, first_dirty)
    newest = {record.key: record.offset for record in everything if record.offset >= first_dirty}
    for record in everything:
        if record.offset in replaced and record.key is not None:
            newest[record.key] = 1000 + record.offset
            assert table.put(record.key, 1000 + record.offset)
    expected = [
        record
        for record in everything
        if record.offset > latest
        or (
            record.key is not None
            and record.offset >= newest.get(record.key, -1)
            and (record.value is not None or keep_tombstones)
        )
    ]
    sieve = Filter(section, 0, latest, keep_tombstones)
    while not sieve.advance(table, slice_bytes):
        pass
    kept = sieve.section()
    assert sieve.records == len(records)
    assert sieve.retained == len(expected)
    assert sieve.tombstones == sum(record.value is None for record in expected)
    assert records_in(kept, len(expected), 0, records[0][3]) == expected  # type: ignore[arg-type]
    if expected:
        assert sieve.max_timestamp_delta == max(record.timestamp for record in expected) - records[0][3]  # type: ignore[operator]
    if len(expected) == len(everything):
        assert kept is section or kept == section


@settings(max_examples=60)
@given(sections, st.integers(-4_000_000_000_000, 4_000_000_000_000))
def test_rebased_records_have_the_same_timestamps_from_another_base(records: list[tuple[object, ...]], shift: int) -> None:
    section = section_of(records)
    base: int = records[0][3]  # type: ignore[assignment]
    moved = rebase(section, shift)
    assert records_in(moved, len(records), 0, base - shift) == records_in(section, len(records), 0, base)
    assert rebase(moved, -shift) == section


@settings(max_examples=100)
@given(sections, st.data())
def test_sections_that_are_cut_or_changed_raise_malformed_input_or_pass(
    records: list[tuple[object, ...]], data: st.DataObject
) -> None:
    section = bytearray(section_of(records))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(section) - 1))
        section[at] = data.draw(st.integers(0, 255))
    cut = bytes(section[: data.draw(st.integers(0, len(section)))])
    table = KeyMap(SLOTS_MIN, 100, 0)
    try:
        Put(cut, 0, 0).advance(table, FAR)
    except MalformedInput:
        pass
    try:
        Filter(cut, 0, FAR, True).advance(table, FAR)
    except MalformedInput:
        pass


@pytest.mark.parametrize(
    "section", [b"\x01", b"\x0e\x00\x00\x00\x02a", b"\xff\xff\xff\xff\xff", b"\x0c\x00\x00\x00\x7fa\x00\x00"]
)
def test_impossible_lengths_are_malformed(section: bytes) -> None:
    table = KeyMap(SLOTS_MIN, 100, 0)
    with pytest.raises(MalformedInput):
        Put(section, 0, 0).advance(table, FAR)
    with pytest.raises(MalformedInput):
        Filter(section, 0, FAR, True).advance(table, FAR)
