"""The inner loops of compaction: the table of keys, the two walks, and timestamps moved to another base."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.errors import MalformedInput
from ottla.records.batch import read_batch_header
from ottla.records.clean import OFFSET_RANGE, SLOTS_MIN, Filter, KeyMap, put_records, rebase
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


def test_the_table_knows_the_last_offset_of_each_key() -> None:
    table = KeyMap(1 << 13, 7000, 100)
    known: dict[bytes, int] = {}
    for number in range(20_000):
        key = b"key-%d" % (number * 7919 % 6000)
        assert table.put(key, 100 + number)
        known[key] = 100 + number
    assert table.size == len(known)
    assert table.latest_offset == 20_099
    assert all(table.get(key) == offset for key, offset in known.items())
    assert table.get(b"another") == -1
    assert table.get(b"") == -1


def test_a_full_table_takes_known_keys_and_no_others() -> None:
    table = KeyMap(SLOTS_MIN, SLOTS_MIN - 1, 0)
    for number in range(SLOTS_MIN - 1):
        assert table.put(b"%d" % number, number)
    assert not table.put(b"one too many", 5000)
    assert table.latest_offset == SLOTS_MIN - 2
    assert table.put(b"0", 6000)
    assert table.get(b"0") == 6000
    assert table.get(b"one too many") == -1


def test_offsets_out_of_range_of_the_table_are_as_if_it_were_full() -> None:
    table = KeyMap(SLOTS_MIN, 100, 1 << 50)
    assert table.put(b"a", (1 << 50) + OFFSET_RANGE - 1)
    assert table.get(b"a") == (1 << 50) + OFFSET_RANGE - 1
    assert not table.put(b"a", (1 << 50) + OFFSET_RANGE)
    assert not table.put(b"b", (1 << 50) + OFFSET_RANGE)


@settings(max_examples=60)
@given(sections, st.integers(0, 25), st.integers(1, 200))
def test_indexing_puts_every_key_from_the_start_offset_on(
    records: list[tuple[object, ...]], start: int, slice_bytes: int
) -> None:
    section = section_of(records)
    table = KeyMap(SLOTS_MIN, 100, 0)
    position = 0
    while position < len(section):
        following = put_records(table, section, 10, start, position, slice_bytes)
        assert following > position
        position = following
    expected = {key: 10 + index for index, (key, *_) in enumerate(records) if key is not None and 10 + index >= start}
    assert {key: table.get(key) for key in expected} == expected  # type: ignore[arg-type]
    assert table.size == len(expected)


def test_indexing_stops_where_the_table_is_full_and_knows_how_far_it_came() -> None:
    section = section_of([(b"%d" % number, b"v", (), T) for number in range(50)])
    table = KeyMap(SLOTS_MIN, 20, 0)
    assert put_records(table, section, 0, 0, 0, FAR) == -1
    assert (table.size, table.latest_offset) == (20, 19)


@settings(max_examples=80)
@given(sections, st.sets(st.integers(0, 19)), st.integers(-1, 20), st.booleans(), st.integers(1, 200))
def test_the_filter_keeps_what_no_later_record_replaced(
    records: list[tuple[object, ...]], replaced: set[int], latest: int, keep_tombstones: bool, slice_bytes: int
) -> None:
    section = section_of(records)
    everything = records_in(section, len(records), 0, records[0][3])  # type: ignore[arg-type]
    table = KeyMap(SLOTS_MIN, 100, 0)
    newest: dict[bytes, int] = {}
    for record in everything:
        if record.key is not None:
            newest[record.key] = 1000 if record.offset in replaced else max(newest.get(record.key, 0), record.offset)
    for key, offset in newest.items():
        table.put(key, offset)
    expected = [
        record
        for record in everything
        if record.offset > latest
        or (record.key is not None and record.offset >= newest[record.key] and (record.value is not None or keep_tombstones))
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
        put_records(table, cut, 0, 0, 0, FAR)
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
        put_records(table, section, 0, 0, 0, FAR)
    with pytest.raises(MalformedInput):
        Filter(section, 0, FAR, True).advance(table, FAR)
