"""The indexes of one segment, in memory and in their files: by offset, by time, and of aborted transactions.

Owns loading, writing and truncating them. Rebuilding them from the .log file is the segment's. An index that is None is not in
memory; `evict` drops all of them, and they can be loaded again.
"""

from __future__ import annotations

from ottla.storage.names import OFFSET_INDEX, TIME_INDEX, TXN_INDEX
from ottla.storage.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from ottla.storage.offset_index import CorruptIndex, OffsetIndex
from ottla.storage.segment_files import SegmentFiles
from ottla.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from ottla.storage.time_index import TimeIndex
from ottla.storage.txn_index import ENTRY_BYTES as TXN_ENTRY_BYTES
from ottla.storage.txn_index import AbortedTxn, TxnIndex


class SegmentIndexes:
    def __init__(self, files: SegmentFiles) -> None:
        self._files = files
        self.offset: OffsetIndex | None = None
        self.time: TimeIndex | None = None
        self.txn: TxnIndex | None = None
        self._checked = False
        """The .index file was checked before: it need not be checked when it is loaded again."""
        self.has_aborted = False
        """There are aborted transactions; without any, no .txnindex file exists."""
        self.txn_dirty = False
        """Entries were added to the .txnindex file and may not be flushed."""

    def start_empty(self) -> None:
        self.offset = OffsetIndex(self._files.base_offset)
        self.time = TimeIndex(self._files.base_offset)

    @property
    def entries_held(self) -> int:
        return sum(len(index) for index in (self.offset, self.time, self.txn) if index is not None)

    def evict(self) -> None:
        self.offset = None
        self.time = None
        self.txn = None

    @property
    def suffixes(self) -> tuple[str, ...]:
        return (OFFSET_INDEX, TIME_INDEX, TXN_INDEX) if self.has_aborted else (OFFSET_INDEX, TIME_INDEX)

    def are_plausible(self) -> bool:
        """Whether the sizes of the .index and .timeindex files are possible."""
        disk, files = self._files.disk, self._files
        try:
            return (
                disk.size(files.path(OFFSET_INDEX)) % OFFSET_ENTRY_BYTES == 0
                and disk.size(files.path(TIME_INDEX)) % TIME_ENTRY_BYTES == 0
            )
        except FileNotFoundError:
            return False

    def load_offset(self, log_size: int) -> OffsetIndex | None:
        """Read the .index file. None: it is missing or corrupt."""
        try:
            data = self._files.read(OFFSET_INDEX)
            index = OffsetIndex.parse(self._files.base_offset, data, log_size, check=not self._checked)
        except (CorruptIndex, FileNotFoundError):
            return None
        self.offset, self._checked = index, True
        self._remove_padding(OFFSET_INDEX, index.persisted * OFFSET_ENTRY_BYTES, len(data))
        return index

    def load_time(self) -> TimeIndex | None:
        """Read the .timeindex file. None: it is missing or corrupt."""
        try:
            data = self._files.read(TIME_INDEX)
            index = TimeIndex.parse(self._files.base_offset, data)
        except (CorruptIndex, FileNotFoundError):
            return None
        self.time = index
        self._remove_padding(TIME_INDEX, index.persisted * TIME_ENTRY_BYTES, len(data))
        return index

    def _remove_padding(self, suffix: str, size: int, found: int) -> None:
        """Kafka allocates index files ahead: unused entries are zeros."""
        if size < found:
            self._files.shrink(suffix, size)

    def write_pending(self) -> None:
        """Append the entries that are only in memory to the files."""
        index, time_index = self.offset, self.time
        if index is not None and index.persisted < len(index):
            self._files.write(OFFSET_INDEX, index.persisted * OFFSET_ENTRY_BYTES, index.pending_bytes())
            index.persisted = len(index)
        if time_index is not None and time_index.persisted < len(time_index):
            self._files.write(TIME_INDEX, time_index.persisted * TIME_ENTRY_BYTES, time_index.pending_bytes())
            time_index.persisted = len(time_index)

    def replace(self, index: OffsetIndex, time_index: TimeIndex) -> None:
        """Use indexes that were rebuilt, and update the files."""
        self.offset, self.time, self._checked = index, time_index, True
        self._files.update(OFFSET_INDEX, index.pending_bytes(), OFFSET_ENTRY_BYTES)
        self._files.update(TIME_INDEX, time_index.pending_bytes(), TIME_ENTRY_BYTES)
        index.persisted, time_index.persisted = len(index), len(time_index)

    def truncate(self, offset: int) -> None:
        """Drop the entries at and behind an offset, in memory (all are loaded) and in the files."""
        assert self.offset is not None
        assert self.time is not None
        self.offset.truncate(offset)
        self.time.truncate(offset)
        self._files.shrink(OFFSET_INDEX, self.offset.persisted * OFFSET_ENTRY_BYTES)
        self._files.shrink(TIME_INDEX, self.time.persisted * TIME_ENTRY_BYTES)
        if self.has_aborted:
            self.replace_txn([entry for entry in self.load_txn() if entry.last_offset < offset])

    # --- aborted transactions

    def load_txn(self) -> TxnIndex:
        """OSError if the .txnindex file is corrupt: it was checked when the log was opened."""
        index = self.txn
        if index is None:
            try:
                index = TxnIndex.parse(self._files.base_offset, self._files.read(TXN_INDEX) if self.has_aborted else b"")
            except CorruptIndex as error:
                raise OSError(f"{self._files.path(TXN_INDEX)}: {error}") from error
            self.txn = index
        return index

    def is_txn_plausible(self) -> bool:
        """Whether the .txnindex file can belong to this segment. It is small, and read whole."""
        if self.has_aborted:
            try:
                self.txn = TxnIndex.parse(self._files.base_offset, self._files.read(TXN_INDEX))
            except (CorruptIndex, FileNotFoundError):
                return False
        return True

    def add_aborted(self, entry: AbortedTxn) -> None:
        """An abort marker was appended to the segment. The file is written at once."""
        index = self.load_txn()
        count = len(index)
        index.append(entry)
        self.has_aborted = self.txn_dirty = True
        self._files.write(TXN_INDEX, count * TXN_ENTRY_BYTES, index.to_bytes(count))

    def replace_txn(self, entries: list[AbortedTxn]) -> None:
        """Replace the entries with those found in the log, durably: the file is not checked against the log again. Content that
        is equal already may come from a killed process and not be on the disk, so it is flushed too."""
        index = TxnIndex(entries)
        exists = self._files.exists(TXN_INDEX)
        if entries:
            data = index.to_bytes()
            if not exists or self._files.read(TXN_INDEX) != data:
                self._files.write(TXN_INDEX, 0, data)
            self._files.flush(TXN_INDEX)
        elif exists:
            self._files.disk.remove(self._files.path(TXN_INDEX))
        self.txn = index
        self.has_aborted = bool(entries)
