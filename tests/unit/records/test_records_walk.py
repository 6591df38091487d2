"""A large section is walked over piece by piece; what is found is what a walk over the whole finds (F20-F23)."""

from __future__ import annotations

import random

import pytest

from ottla.errors import MalformedInput
from ottla.records.batch import RECORDS_AT
from ottla.records.record import Fields, build_batch
from ottla.records.walk import INT64_MAX, INT64_MIN, PIECE_BYTES, Walk, walk, walk_view
from tests.kit.record_batches import NOW_MS


def section_of(sizes: list[int]) -> bytes:
    records: list[Fields] = [
        (b"k" * (at % 3) if at % 5 else None, bytes([at % 256]) * size, [("h", b"x")] if at % 7 == 0 else [], NOW_MS + at % 11)
        for at, size in enumerate(sizes)
    ]
    return bytes(build_batch(records)[RECORDS_AT:])


def outcome(found: Walk) -> tuple[int, ...]:
    return found.records, found.max_timestamp_delta, found.max_index, found.null_keys, found.out_of_range


def both(section: bytes, count: int, delta_min: int = INT64_MIN, delta_max: int = INT64_MAX) -> object:
    """What the walk over the whole says, having seen that the one over pieces says the same."""
    told: list[object] = []
    for way in (walk, lambda data, *rest: walk_view(memoryview(data), *rest)):
        try:
            told.append(outcome(way(section, count, delta_min, delta_max)))
        except MalformedInput as error:
            told.append(str(error))
    assert told[0] == told[1]
    return told[0]


@pytest.mark.parametrize("size", [0, 1, 100, 1000, 5000])
def test_records_of_one_size(size: int) -> None:
    count = 3 * PIECE_BYTES // (size + 12)
    section = section_of([size] * count)
    assert len(section) > 2 * PIECE_BYTES
    found = both(section, count, 0, 9)
    assert isinstance(found, tuple)
    assert found[:3] == (count, 10, 10)
    assert found[4] == sum(at % 11 == 10 for at in range(count))


@pytest.mark.parametrize("large", [PIECE_BYTES - 20, PIECE_BYTES, 3 * PIECE_BYTES, 10 * PIECE_BYTES])
def test_a_record_that_is_larger_than_a_piece(large: int) -> None:
    sizes = [50] * 700 + [large] + [50] * 700 + [large]
    assert both(section_of(sizes), len(sizes)) is not None


def test_pieces_end_anywhere_in_a_record() -> None:
    for first in range(130):
        sizes = [first] + [108] * (PIECE_BYTES // 100)
        found = both(section_of(sizes), len(sizes))
        assert isinstance(found, tuple)


def test_what_is_damaged_is_refused_in_the_same_words() -> None:
    chance = random.Random(4)
    sizes = [chance.randrange(20) for _ in range(8000)]
    section = section_of(sizes)
    assert len(section) > 2 * PIECE_BYTES
    refused = 0
    for _ in range(100):
        damaged = bytearray(section)
        at = chance.choice((chance.randrange(len(section)), chance.randrange(PIECE_BYTES - 9, PIECE_BYTES + 9)))
        damaged[at] = chance.choice((0, 1, 0x7F, 0x80, 0xFF, chance.randrange(256)))
        refused += isinstance(both(bytes(damaged), len(sizes)), str)
    assert refused > 20


@pytest.mark.parametrize("cut", [1, 5, 100, 1000])
def test_what_is_cut_off_or_too_long_is_refused(cut: int) -> None:
    sizes = [100] * 2000
    section = section_of(sizes)
    assert isinstance(both(section[:-cut], len(sizes)), str)
    assert isinstance(both(section + bytes(cut), len(sizes)), str)
    assert isinstance(both(section, len(sizes) - cut), str)
    assert isinstance(both(section, len(sizes) + cut), str)


def test_timestamp_deltas_of_every_length() -> None:
    deltas = [0, 63, -64, 64, -65, 8191, -8192, 8192, -8193, 1 << 20, -(1 << 20), 1 << 40, -(1 << 40), 127, -128]
    records: list[Fields] = [(None, b"v", [], NOW_MS + delta) for delta in deltas]
    section = bytes(build_batch(records)[RECORDS_AT:])
    for least in deltas:
        for most in deltas:
            found = both(section, len(deltas), least, most)
            assert found == (len(deltas), 1 << 40, 11, len(deltas), sum(not least <= delta <= most for delta in deltas))
