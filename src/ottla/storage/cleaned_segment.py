"""The segment that compaction writes. Its files are named `.cleaned` until they are complete. Used by one worker."""

from __future__ import annotations

from collections.abc import Sequence

from ottla.ports import Disk
from ottla.records.batch import BatchInfo
from ottla.storage.names import CLEANED, LOG, OFFSET_INDEX, SEGMENT_SUFFIXES, TIME_INDEX, TXN_INDEX
from ottla.storage.scan import IndexBuilder
from ottla.storage.segment import Segment
from ottla.storage.txn_index import AbortedTxn, TxnIndex
from ottla.types import NO_TIMESTAMP, Buffer


class CleanedSegment:
    def __init__(self, disk: Disk, first: Segment, last: Segment, index_interval_bytes: int) -> None:
        """Replaces the segments from `first` to `last`."""
        self._disk = disk
        self.segment = first.replacement(created_ms=last.created_ms)
        self.segment.index_interval_bytes = index_interval_bytes
        self._built = IndexBuilder(first.base_offset, index_interval_bytes)
        self._file = disk.open(self.segment.path(LOG) + CLEANED, create=True)
        self._file.truncate(0)

    def append(self, parts: Sequence[Buffer], batches: Sequence[BatchInfo]) -> int:
        """Append batches, whose bytes are `parts`. Returns the number of bytes."""
        if not batches:
            return 0
        segment, built = self.segment, self._built
        before = segment.size
        self._file.write(before, parts)
        for info in batches:
            built.add(info.size, info.last_offset, info.max_timestamp if info.record_count else NO_TIMESTAMP)
        segment.size = built.position
        return segment.size - before

    def finish(self, aborted: Sequence[AbortedTxn] = ()) -> None:
        """Write the indexes and flush all files. `aborted`: the transactions whose abort markers are in the segment."""
        built = self._built
        built.time_index.append(built.max_timestamp, built.offset_of_max)
        files = [(OFFSET_INDEX, built.index.pending_bytes()), (TIME_INDEX, built.time_index.pending_bytes())]
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
        """Remove the files. They may be gone with the directory of a deleted log."""
        self._file.close()
        for suffix in SEGMENT_SUFFIXES:
            try:
                self._disk.remove(self.segment.path(suffix) + CLEANED)
            except FileNotFoundError:
                continue
