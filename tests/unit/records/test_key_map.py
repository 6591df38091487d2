"""The table of keys of a compaction, and the sets of offsets beside it."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.records.key_map import OFFSET_RANGE, SLOTS_MIN, KeyMap
from ottla.records.offset_set import OffsetSet

PAGE = 1 << 15
"""Offsets in a page of a set."""


def test_the_table_knows_the_last_offset_of_each_key() -> None:
    table = KeyMap(1 << 13, 7000, 100)
    known: dict[bytes, int] = {}
    replaced = set()
    for number in range(20_000):
        key = b"key-%d" % (number * 7919 % 6000)
        assert table.put(key, 100 + number)
        replaced.add(known.get(key))
        known[key] = 100 + number
    assert table.size == len(known)
    assert table.latest_offset == 20_099
    assert all(table.get(key) == offset for key, offset in known.items())
    assert table.get(b"another") == -1
    assert table.get(b"") == -1
    assert {offset for offset in range(25_000) if table.replaced.has(offset)} == replaced - {None}


def test_the_table_grows_page_by_page_and_loses_nothing() -> None:
    table = KeyMap(1 << 17, 100_000, 0)
    for number in range(100_000):
        assert table.put(number.to_bytes(3, "big"), number)
    assert not table.put(b"full", 100_000)
    assert table.size == 100_000
    assert all(table.get(number.to_bytes(3, "big")) == number for number in range(100_000))
    assert table.replaced.count(0, 100_000) == 0


def test_a_page_that_cannot_be_split_any_more_takes_keys_until_one_slot_is_left() -> None:
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


def test_keys_that_differ_in_one_bit_or_in_trailing_zeros_are_different_keys() -> None:
    """Each length from nothing to beyond what is hashed in words, and at each length every bit."""
    table = KeyMap(1 << 16, 50_000, 0)
    keys = [bytes(size) for size in range(300)]
    for size in (1, 3, 4, 5, 8, 16, 255, 256, 257):
        keys += [(1 << bit).to_bytes(size, "big") for bit in range(size * 8)]
    for offset, key in enumerate(keys):
        assert table.put(key, offset)
    assert table.size == len(keys) == len(set(keys))
    assert [table.get(key) for key in keys] == list(range(len(keys)))


def test_a_key_in_the_middle_of_data_is_the_same_key() -> None:
    table = KeyMap(SLOTS_MIN, 1000, 0)
    for size in (0, 1, 4, 7, 16, 300):
        key = bytes(range(1, 256)) * 2
        assert table.put(key[:size], size)
        for before in (b"", b"x", b"four", b"and nine!"):
            assert table.get_at(before + key[:size] + b"behind", len(before), len(before) + size) == size


@settings(max_examples=60)
@given(
    st.integers(0, 1 << 40),
    st.sets(st.one_of(st.integers(-3, 300), st.integers(PAGE - 20, PAGE + 20), st.integers(3 * PAGE - 9, 3 * PAGE + 9))),
    st.integers(-5, 3 * PAGE + 20),
    st.one_of(st.integers(0, 100), st.integers(0, 3 * PAGE)),
)
def test_a_set_of_offsets_has_those_of_its_range_that_were_added(base: int, added: set[int], first: int, span: int) -> None:
    found = OffsetSet(base, 3 * PAGE)
    for offset in added:
        found.add(base + offset)
    inside = {offset for offset in added if 0 <= offset < 3 * PAGE}
    assert all(found.has(base + offset) == (offset in inside) for offset in added | {first, first + span, 0, 3 * PAGE})
    assert found.count(base + first, base + first + span) == sum(first <= offset <= first + span for offset in inside)
    assert found.covers(base, base + 3 * PAGE - 1)
    assert not found.covers(base - 1, base)
    assert not found.covers(base, base + 3 * PAGE)


def test_a_set_of_no_offsets_covers_none() -> None:
    found = OffsetSet(7, 0)
    found.add(7)
    assert not found.has(7)
    assert not found.covers(7, 7)
    assert found.count(0, 100) == 0
