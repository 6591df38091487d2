"""The time index as a running or crashed Apache Kafka leaves it: space for ten megabytes of entries, most of it never written."""

from __future__ import annotations

import struct

import pytest

from ottla.storage.offset_index import CorruptIndex
from ottla.storage.time_index import ENTRY_BYTES, TimeIndex
from ottla.types import NO_TIMESTAMP

PREALLOCATED = 10 * 1024 * 1024 // ENTRY_BYTES * ENTRY_BYTES


def entries(*pairs: tuple[int, int]) -> bytes:
    return b"".join(struct.pack(">qi", *pair) for pair in pairs)


@pytest.mark.parametrize(
    "pairs",
    [
        (),
        ((1_700_000_000_000, 0),),
        ((1_700_000_000_000, 5), (1_700_000_000_001, 256)),  # ends in a zero byte itself
        ((1 << 40, 0),),  # all zeros but one bit
        ((256, 1 << 24),),
    ],
)
def test_space_that_was_allocated_and_not_written_holds_no_entries(pairs: tuple[tuple[int, int], ...]) -> None:
    data = entries(*pairs)
    index = TimeIndex.parse(100, data + bytes(PREALLOCATED - len(data)))
    assert index.entries() == [(timestamp, 100 + offset) for timestamp, offset in pairs]
    assert index.persisted == len(pairs), "what is appended next goes where the zeros begin"
    last = index.last()
    assert (last.timestamp_ms, last.offset) == ((pairs[-1][0], 100 + pairs[-1][1]) if pairs else (NO_TIMESTAMP, 100))


def test_an_entry_behind_zeros_is_no_entry() -> None:
    with pytest.raises(CorruptIndex):
        TimeIndex.parse(0, entries((1000, 3), (0, 0), (2000, 5)))
