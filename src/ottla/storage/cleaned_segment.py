"""The segment that compaction writes: its files, named `.cleaned` until they are complete.

Owns: these files. Never sees what is left out; gets whole batches and accounts for them as an append would. A worker's: nobody
else knows of it before `finish`.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.ports import Disk
from ottla.records.batch import BatchInfo
from ottla.storage.names import CLEANED, LOG, OFFSET_INDEX, SEGMENT_SUFFIXES, TIME_INDEX, TXN_INDEX
from ottla.storage.offset_index import OffsetIndex
from ottla.storage.segment import Segment
from ottla.storage.time_index import TimeIndex
from ottla.storage.txn_index import AbortedTxn, TxnIndex
from ottla.types import NO_TIMESTAMP, Buffer


class CleanedSegment:
    __slots__ = ("_bytes_since_entry", "_disk", "_file", "_index", "_max_timestamp", "_offset_of_max", "_time_index", "segment")

    def __init__(self, disk: Disk, first: Segment, last: Segment, index_interval_bytes: int) -> None:
        """In the place of the segments from `first` to `last`."""
        self._disk = disk
        self.segment = first.successor(created_ms=last.created_ms)
        self.segment.index_interval_bytes = index_interval_bytes
        self._index = OffsetIndex(first.base_offset)
        self._time_index = TimeIndex(first.base_offset)
        self._bytes_since_entry = 0
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max = first.base_offset
        self._file = disk.open(self.segment.path(LOG) + CLEANED, create=True)
        self._file.truncate(0)

    def append(self, parts: Sequence[Buffer], batches: Sequence[BatchInfo]) -> int:
        """Batches, and the bytes they consist of. Returns how many bytes."""
        segment = self.segment
        if not batches:
            return 0
        self._file.write(segment.size, parts)
        before = segment.size
        for info in batches:
            if info.max_timestamp > self._max_timestamp and info.record_count:
                self._max_timestamp, self._offset_of_max = info.max_timestamp, info.last_offset
            if self._bytes_since_entry > segment.index_interval_bytes:
                self._index.append(info.last_offset, segment.size)
                self._time_index.append(self._max_timestamp, self._offset_of_max)
                self._bytes_since_entry = 0
            self._bytes_since_entry += info.size
            segment.size += info.size
        return segment.size - before

    def finish(self, aborted: Sequence[AbortedTxn] = ()) -> None:
        """All is written: indexes too, and everything is on the disk. `aborted`: the transactions whose markers are in it."""
        self._time_index.append(self._max_timestamp, self._offset_of_max)
        files = [(OFFSET_INDEX, self._index.pending_bytes()), (TIME_INDEX, self._time_index.pending_bytes())]
        if aborted:
            files.append((TXN_INDEX, TxnIndex(aborted).to_bytes()))
        for suffix, data in files:
            file = self._disk.open(self.segment.path(suffix) + CLEANED, create=True)
            try:
                file.truncate(0)
                file.write(0, [data])
                file.flush()
            finally:
                file.close()
        self._file.flush()
        self._file.close()

    def remove(self) -> None:
        """Throw it away. What cannot be reached any more is gone with its directory."""
        self._file.close()
        for suffix in SEGMENT_SUFFIXES:
            try:
                self._disk.remove(self.segment.path(suffix) + CLEANED)
            except FileNotFoundError:
                continue
