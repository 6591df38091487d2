"""The transaction index of a segment (`.txnindex`, Kafka's format version 0): aborted transactions with a marker in the segment.

Entries are in the order of the markers. The file exists only if there are entries.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from ottla.storage.offset_index import CorruptIndex

ENTRY_BYTES: Final = 34
VERSION: Final = 0
_ENTRY: Final = struct.Struct(">hqqqq")


class AbortedTxn(NamedTuple):
    producer_id: int
    first_offset: int
    last_offset: int
    """The offset of the marker."""
    last_stable_offset: int
    """The last stable offset when the marker was written."""


class TxnIndex:
    def __init__(self, entries: Iterable[AbortedTxn] = ()) -> None:
        self._data = bytearray()
        self._last_offsets = array("q")
        for entry in entries:
            self.append(entry)

    @classmethod
    def parse(cls, base_offset: int, data: bytes) -> TxnIndex:
        """CorruptIndex if the data cannot be the index of the segment."""
        if len(data) % ENTRY_BYTES:
            raise CorruptIndex(f"transaction index of {len(data)} bytes is no multiple of {ENTRY_BYTES}")
        index = cls()
        before = base_offset - 1
        for version, _, first_offset, last_offset, _ in _ENTRY.iter_unpack(data):
            if version != VERSION or last_offset <= before or not 0 <= first_offset <= last_offset:
                raise CorruptIndex(f"an aborted transaction from {first_offset} to {last_offset}, of version {version}")
            before = last_offset
            index._last_offsets.append(last_offset)
        index._data += data
        return index

    def __len__(self) -> int:
        return len(self._last_offsets)

    def __iter__(self) -> Iterator[AbortedTxn]:
        return (AbortedTxn(*fields[1:]) for fields in _ENTRY.iter_unpack(self._data))

    def append(self, entry: AbortedTxn) -> None:
        self._data += _ENTRY.pack(VERSION, *entry)
        self._last_offsets.append(entry.last_offset)

    def to_bytes(self, first: int = 0) -> bytes:
        """The entries from the given one on."""
        return bytes(self._data[first * ENTRY_BYTES :])

    def collect(self, start_offset: int, end_offset: int, found: list[AbortedTxn]) -> bool:
        """Add the transactions that overlap a range of offsets. True: later segments have no more of them."""
        for slot in range(bisect_left(self._last_offsets, start_offset), len(self._last_offsets)):
            entry = AbortedTxn(*_ENTRY.unpack_from(self._data, slot * ENTRY_BYTES)[1:])
            if entry.first_offset < end_offset:
                found.append(entry)
            if entry.last_stable_offset >= end_offset:
                return True
        return False
