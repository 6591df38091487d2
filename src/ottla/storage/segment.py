"""One segment of a log: a `.log` file of record batches, its two sparse indexes, and the index of aborted transactions.

Owns: the files that carry one base offset, and finding a batch in them. Never decides when to roll, what to delete or how far a
reader may see; never checks a CRC except while it rebuilds its indexes.

Invariants
1. `size` is the bytes of whole batches; the file may be longer only between a failed write and its clean-up.
2. Only the active segment has index entries that are not in their files yet.
3. A sealed segment holds neither descriptor nor index until somebody reads it, and gives them back when `SegmentCache` asks. A
   descriptor is never closed under a reader: dropping the last reference closes it.
4. Only the active segment has room reserved behind its end (`reservation`), and only its writer reserves or gives back.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.ports import Disk, File
from ottla.records.batch import MAGIC_V2, RECORDS_AT, BatchInfo, header_at
from ottla.storage.checkpoint import flush_file
from ottla.storage.config import INT64_MAX
from ottla.storage.names import DELETED, LOG, OFFSET_INDEX, SEGMENT_SUFFIXES, TIME_INDEX, TXN_INDEX, offset_file
from ottla.storage.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from ottla.storage.offset_index import CorruptIndex, OffsetIndex
from ottla.storage.reservation import AHEAD_BYTES_MAX, BEGIN_BYTES, is_free_enough, reserve_until
from ottla.storage.scan import SEEK_BYTES, IndexBuilder, index_file, scan_file, seek
from ottla.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from ottla.storage.time_index import TimeIndex
from ottla.storage.txn_index import ENTRY_BYTES as TXN_ENTRY_BYTES
from ottla.storage.txn_index import AbortedTxn, TxnIndex
from ottla.types import NO_TIMESTAMP


class IndexLost(Exception):
    """The indexes of a sealed segment have to be built again, and whoever came for them has no time for it: others wait.

    Any thread may `build` them, for that touches a file and nothing else; what comes of it is for `Segment.built_elsewhere`.
    """

    def __init__(self, segment: Segment, broken: str, build: Callable[[], IndexBuilder]) -> None:
        super().__init__(f"{segment.path(OFFSET_INDEX)} has to be built again")
        self.segment = segment
        self.broken = broken
        """Where an index led to bytes that are no batch, if there was one."""
        self.build = build


class SegmentCache:
    """Which sealed segments may keep their descriptor and their index: those read last, up to two limits."""

    __slots__ = ("_entries", "_entries_max", "_latest", "_segments", "_segments_max")

    def __init__(self, segments_max: int = 512, index_entries_max: int = 4 << 20) -> None:
        self._segments: OrderedDict[Segment, int] = OrderedDict()
        self._segments_max = segments_max
        self._entries_max = index_entries_max
        self._entries = 0
        self._latest: Segment | None = None

    def __len__(self) -> int:
        return len(self._segments)

    def touch(self, segment: Segment) -> None:
        """A sealed segment was used. Every read of one says so several times: most often there is nothing to be done."""
        if segment is self._latest:
            return
        if segment in self._segments:
            self._segments.move_to_end(segment)
            self._latest = segment
        else:
            self.loaded(segment)

    def loaded(self, segment: Segment) -> None:
        """A sealed segment holds more than before, or was not known."""
        self._latest = segment
        held = segment.index_entries_held
        self._entries += held - self._segments.get(segment, 0)
        self._segments[segment] = held
        self._segments.move_to_end(segment)
        while len(self._segments) > 1 and (len(self._segments) > self._segments_max or self._entries > self._entries_max):
            oldest, entries = self._segments.popitem(last=False)
            self._entries -= entries
            oldest.let_go()

    def forget(self, segment: Segment) -> None:
        if segment is self._latest:
            self._latest = None
        self._entries -= self._segments.pop(segment, 0)


class Segment:
    __slots__ = (
        "_broken",
        "_cache",
        "_disk",
        "_file",
        "_index",
        "_index_checked",
        "_max_timestamp",
        "_offset_of_max",
        "_reserved_end",
        "_time_index",
        "_txn_index",
        "active",
        "base_offset",
        "bytes_since_entry",
        "created_ms",
        "dir",
        "end_offset",
        "first_timestamp",
        "has_aborted",
        "index_interval_bytes",
        "jitter_ms",
        "reserve_at",
        "size",
        "txn_index_dirty",
    )

    def __init__(
        self,
        disk: Disk,
        dir: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        jitter_ms: int,
        now_ms: int,
        cache: SegmentCache,
    ) -> None:
        self._disk = disk
        self._cache = cache
        self.dir = dir
        self.base_offset = base_offset
        self.end_offset = base_offset
        """Exclusive. Of a sealed segment: the base of the next one."""
        self.size = 0
        self.active = False
        self.reserve_at = BEGIN_BYTES
        """An append that reaches beyond it is to `reserve` first."""
        self._reserved_end = 0
        self.created_ms = now_ms
        self.index_interval_bytes = index_interval_bytes
        self.jitter_ms = jitter_ms
        self.bytes_since_entry = 0
        self.first_timestamp: int | None = None
        """The largest timestamp of the first append, from which the segment's age counts. None: not looked up yet."""
        self._max_timestamp: int | None = None
        self._offset_of_max = base_offset
        self._file: File | None = None
        self._index: OffsetIndex | None = None
        self._index_checked = False
        """The file was read once and found in order."""
        self._time_index: TimeIndex | None = None
        self._txn_index: TxnIndex | None = None
        self._broken = ""
        """Where the log file was last found to hold no batch, though an index says there is one."""
        self.has_aborted = False
        """The transaction index has entries; without any there is no such file."""
        self.txn_index_dirty = False
        """Entries were added, and perhaps not flushed."""

    @classmethod
    def create(
        cls,
        disk: Disk,
        dir: str,
        base_offset: int,
        *,
        index_interval_bytes: int,
        jitter_ms: int,
        now_ms: int,
        cache: SegmentCache,
        in_new_dir: bool = False,
    ) -> Segment:
        """A new, empty, active segment. Files of that name are remains of something that failed, and are emptied; in a directory
        that is as new there are none."""
        segment = cls(
            disk, dir, base_offset, index_interval_bytes=index_interval_bytes, jitter_ms=jitter_ms, now_ms=now_ms, cache=cache
        )
        if not in_new_dir and disk.exists(segment.path(TXN_INDEX)):
            disk.remove(segment.path(TXN_INDEX))
        for suffix in (OFFSET_INDEX, TIME_INDEX, LOG):  # the log last: its name is what makes a segment
            file = disk.open(segment.path(suffix), create=True)
            if not in_new_dir and file.size():
                file.truncate(0)
            if suffix == LOG:
                segment._file = file
            else:
                file.close()
        segment._start_empty()
        segment.active = True
        return segment

    def _start_empty(self) -> None:
        self._index = OffsetIndex(self.base_offset)
        self._time_index = TimeIndex(self.base_offset)
        self._max_timestamp = NO_TIMESTAMP
        self._offset_of_max = self.base_offset
        self.bytes_since_entry = 0

    # --- files

    def path(self, suffix: str) -> str:
        return f"{self.dir}/{offset_file(self.base_offset, suffix)}"

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self._disk.open(self.path(LOG))
        if not self.active:
            self._cache.touch(self)
        return file

    @property
    def index(self) -> OffsetIndex:
        index = self._index
        if index is None:
            index = self._load_index()
        elif not self.active:
            self._cache.touch(self)
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self._time_index
        if index is None:
            index = self._load_time_index()
        elif not self.active:
            self._cache.touch(self)
        return index

    @property
    def txn_index(self) -> TxnIndex:
        index = self._txn_index
        if index is None:
            data = self._read_file(TXN_INDEX) if self.has_aborted else b""
            try:
                index = self._txn_index = TxnIndex.parse(self.base_offset, data)
            except CorruptIndex as error:  # it was in order when the log was opened
                raise OSError(f"{self.path(TXN_INDEX)}: {error}") from error
            if not self.active:
                self._cache.loaded(self)
        elif not self.active:
            self._cache.touch(self)
        return index

    @property
    def index_entries_held(self) -> int:
        return sum(len(index) for index in (self._index, self._time_index, self._txn_index) if index is not None)

    def _load_index(self) -> OffsetIndex:
        """Read the index file; build both again from the log where it cannot be right or is not there."""
        index = self._read_index()
        if index is None:
            self.rebuild_indexes()
            index = self._index
            assert index is not None
        return index

    def _read_index(self) -> OffsetIndex | None:
        """None: the file cannot be right, or is not there."""
        try:
            data = self._read_file(OFFSET_INDEX)
            index = OffsetIndex.parse(self.base_offset, data, self.size, check=not self._index_checked)
        except (CorruptIndex, FileNotFoundError):
            return None
        self._index, self._index_checked = index, True
        self._drop_padding(OFFSET_INDEX, index.persisted * OFFSET_ENTRY_BYTES, len(data))
        if not self.active:
            self._cache.loaded(self)
        return index

    def _index_for(self, here: bool) -> OffsetIndex:
        """For a reader. Not `here`: if it has to be built that is IndexLost, except of the active segment, which is written."""
        if self._index is None and not here and not self.active and self._read_index() is None:
            raise self._index_lost("")
        return self.index

    def _load_time_index(self) -> TimeIndex:
        try:
            data = self._read_file(TIME_INDEX)
            index = TimeIndex.parse(self.base_offset, data)
        except (CorruptIndex, FileNotFoundError):
            self.rebuild_indexes()
            assert self._time_index is not None
            return self._time_index
        self._time_index = index
        self._drop_padding(TIME_INDEX, index.persisted * TIME_ENTRY_BYTES, len(data))
        if not self.active:
            self._cache.loaded(self)
        return index

    def _drop_padding(self, suffix: str, size: int, found: int) -> None:
        if size < found:
            file = self._disk.open(self.path(suffix))
            try:
                file.truncate(size)
            finally:
                file.close()

    def _read_file(self, suffix: str) -> bytes:
        file = self._disk.open(self.path(suffix))
        try:
            return file.read(0, file.size())
        finally:
            file.close()

    def indexes_plausible(self) -> bool:
        """What can be said of the index files without reading them."""
        try:
            return (
                self._disk.size(self.path(OFFSET_INDEX)) % OFFSET_ENTRY_BYTES == 0
                and self._disk.size(self.path(TIME_INDEX)) % TIME_ENTRY_BYTES == 0
            )
        except FileNotFoundError:
            return False

    def verify_indexes(self) -> None:
        """Look into the index files now, and build them again if they cannot be right."""
        self._load_index()
        self._load_time_index()
        assert self.max_timestamp is not None

    def write_indexes(self) -> None:
        """Bring the index files up to what is in memory."""
        index, time_index = self._index, self._time_index
        if index is not None and index.persisted < len(index):
            self._write_pending(OFFSET_INDEX, index.persisted * OFFSET_ENTRY_BYTES, index.pending_bytes())
            index.persisted = len(index)
        if time_index is not None and time_index.persisted < len(time_index):
            self._write_pending(TIME_INDEX, time_index.persisted * TIME_ENTRY_BYTES, time_index.pending_bytes())
            time_index.persisted = len(time_index)

    def _write_pending(self, suffix: str, position: int, data: bytes) -> None:
        file = self._disk.open(self.path(suffix), create=True)
        try:
            file.write(position, [data])
            file.truncate(position + len(data))
        finally:
            file.close()

    def let_go(self) -> None:
        """Give back descriptor and indexes; all of them can be had again."""
        if not self.active:
            self._file = None
            self._index = None
            self._time_index = None
            self._txn_index = None

    def let_go_for_good(self) -> None:
        """The log is no more: readers keep their descriptors, this segment opens nothing again."""
        self.give_back()
        self.active = False
        self._cache.forget(self)
        self.let_go()

    def use_cache(self, cache: SegmentCache) -> None:
        self._cache.forget(self)
        self._cache = cache
        self.let_go()

    def activate(self) -> None:
        """Become the one that is appended to (again)."""
        self._cache.forget(self)
        self.active = True

    def seal(self) -> None:
        """No append comes any more: the largest timestamp goes into the time index, both indexes into their files."""
        self.time_index.append(self.max_timestamp, self._offset_of_max)
        self.write_indexes()
        self.give_back()
        self.active = False
        self._cache.loaded(self)

    def finish_indexes(self) -> list[str]:
        """The index files as a sealed segment has them. Returns which are to be flushed: a clean stop vouches for them, and the
        next start does not read the log again."""
        if not self.active or self._index is None:
            return []
        self.time_index.append(self.max_timestamp, self._offset_of_max)
        self.write_indexes()
        return [self.path(suffix) for suffix in self._index_suffixes()]

    def close(self) -> None:
        """Descriptors closed. `finish_indexes` comes before."""
        self._cache.forget(self)
        self.give_back()
        file, self._file = self._file, None
        if file is not None:
            file.close()
        self._index = None
        self._time_index = None
        self._txn_index = None

    def successor(self, created_ms: int) -> Segment:
        """A sealed segment of the same base offset, whose files are still to be written (compaction)."""
        return Segment(
            self._disk,
            self.dir,
            self.base_offset,
            index_interval_bytes=self.index_interval_bytes,
            jitter_ms=self.jitter_ms,
            now_ms=created_ms,
            cache=self._cache,
        )

    def rename_files(self, source: str, target: str, suffixes: Iterable[str]) -> None:
        """Give the files whose names end in `source` another ending, in the order given. The txn index need not be there."""
        for suffix in suffixes:
            path = self.path(suffix)
            if suffix != TXN_INDEX or self._disk.exists(path + source):
                self._disk.rename(path + source, path + target)

    def mark_deleted(self) -> list[str]:
        """Rename the files to `.deleted`; returns what is to be removed later. Readers keep what they have."""
        self.give_back()
        marked = []
        for suffix in SEGMENT_SUFFIXES:
            path = self.path(suffix)
            if self._disk.exists(path):
                self._disk.rename(path, path + DELETED)
                marked.append(path + DELETED)
        self._cache.forget(self)
        return marked

    # --- appending

    def reserve(self, written_bytes: int, segment_bytes: int) -> None:
        """Before an append after which the segment will have so many bytes, which may be `segment_bytes` at most."""
        end = reserve_until(written_bytes, segment_bytes)
        self.reserve_at = written_bytes + AHEAD_BYTES_MAX  # if nothing comes of it now
        if (
            end > written_bytes
            and is_free_enough(self._disk, self.dir)
            and self.file.reserve(max(self.size, self._reserved_end), end)
        ):
            self.reserve_at = self._reserved_end = end

    def give_back(self) -> None:
        """The room that was reserved and is not used."""
        if self._reserved_end > self.size and self._file is not None:
            self._file.release()
        self._forget_reserved()

    def give_back_found(self) -> None:
        """The same of whoever wrote here before, and was killed."""
        self.file.release()

    def cut_torn(self) -> None:
        """Take the bytes of a failed write off again."""
        self._forget_reserved()
        self.file.truncate(self.size)

    def _forget_reserved(self) -> None:
        self._reserved_end = 0
        self.reserve_at = BEGIN_BYTES

    def added(self, last_offset: int, max_timestamp: int, size: int) -> None:
        """One batch was written behind the others: the account of it."""
        if max_timestamp > self.max_timestamp:
            self._max_timestamp = max_timestamp
            self._offset_of_max = last_offset
        if self.bytes_since_entry > self.index_interval_bytes:
            self.index.append(last_offset, self.size)
            self.time_index.append(self.max_timestamp, self._offset_of_max)
            self.bytes_since_entry = 0
        self.bytes_since_entry += size
        self.size += size
        self.end_offset = last_offset + 1

    def has_room(self, index_bytes_max: int) -> bool:
        """Whether the indexes may take another entry; one of the time index is kept free for the seal."""
        return (
            len(self.index) < index_bytes_max // OFFSET_ENTRY_BYTES
            and len(self.time_index) < index_bytes_max // TIME_ENTRY_BYTES - 1
        )

    # --- aborted transactions

    def txn_index_plausible(self) -> bool:
        """Whether the file can be the index of this segment. It is small, and read whole."""
        if not self.has_aborted:
            return True
        try:
            self._txn_index = TxnIndex.parse(self.base_offset, self._read_file(TXN_INDEX))
        except (CorruptIndex, FileNotFoundError):
            return False
        return True

    def add_aborted(self, entry: AbortedTxn) -> None:
        """A marker in this segment aborted a transaction: into the file at once."""
        index = self.txn_index
        count = len(index)
        index.append(entry)
        self.has_aborted = self.txn_index_dirty = True
        self._write_pending(TXN_INDEX, count * TXN_ENTRY_BYTES, index.to_bytes(count))

    def replace_txn_index(self, entries: list[AbortedTxn]) -> None:
        """The entries that the log itself tells of; the file may say something else. Flushed, for nobody will doubt it again:
        also if it says the same, which may be what a killed process wrote and no disk has."""
        index = TxnIndex(entries)
        exists = self._disk.exists(self.path(TXN_INDEX))
        if entries:
            data = index.to_bytes()
            if not exists or self._read_file(TXN_INDEX) != data:
                self._write_pending(TXN_INDEX, 0, data)
            self._flush_file(TXN_INDEX)
        elif exists:
            self._disk.remove(self.path(TXN_INDEX))
        self._txn_index = index
        self.has_aborted = bool(entries)

    # --- reading

    def find(self, offset: int, here: bool = True) -> int:
        """The position of the first batch that ends at or behind an offset; `size` if there is none."""
        return self.find_batch(offset, here)[0]

    def find_batch(self, offset: int, here: bool = True) -> tuple[int, int, int]:
        """The first batch that ends at or behind an offset: position, end, last offset; position `size` if there is none.

        Not `here`: an index that has to be built for it is IndexLost.
        """
        for attempt in (0, 1):
            start, following = self._index_for(here).around(offset)
            try:
                if following - start > SEEK_BYTES:
                    # Batches this large have an entry each: the offset is mostly in the one that the next entry points to.
                    found, base, last, end = seek(
                        self.file, self.size, following, self.base_offset, offset, INT64_MAX, RECORDS_AT
                    )
                    if found == following and base <= offset:
                        return found, end, last
                found, _, last, end = seek(
                    self.file, self.size, start, self.base_offset, offset, INT64_MAX, _bytes_until(start, following)
                )
                return found, end, last
            except MalformedInput as error:
                self._mistrust_index(attempt, error, here)
        raise AssertionError

    def first_batch(self) -> tuple[int, int, int]:
        """The same of the first batch, for which no index is needed. CORRUPT_MESSAGE where the file does not begin with one: what
        a client is sent begins with a batch, or is not sent."""
        try:
            found, _, last, end = seek(self.file, self.size, 0, self.base_offset, self.base_offset, INT64_MAX, RECORDS_AT)
        except MalformedInput as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        return found, end, last

    def cut(self, start: int, limit: int, min_one_batch: bool, here: bool = True) -> tuple[int, int]:
        """The last boundary between batches in [start, limit], and the offset behind it.

        With `min_one_batch` it is behind the batch at `start` also if that reaches beyond the limit. `here`: as above.
        """
        for attempt in (0, 1):
            before, following = self._index_for(here).around_position(limit)
            position = max(start, before)
            try:
                found, base, last, end = seek(
                    self.file, self.size, position, self.base_offset, INT64_MAX, limit, _bytes_until(position, following)
                )
            except MalformedInput as error:
                self._mistrust_index(attempt, error, here)
                continue
            if found == self.size:
                return found, self.end_offset
            return (end, last + 1) if found == start and min_one_batch else (found, base)
        raise AssertionError

    def find_end_offset(self) -> int:
        """The offset behind the last batch, from the file. MalformedInput where the file does not end with a whole batch."""
        last = seek(self.file, self.size, self.index.last_position(), self.base_offset, INT64_MAX, INT64_MAX)[2]
        return last + 1

    def _mistrust_index(self, attempt: int, error: MalformedInput, here: bool) -> None:
        """An index led to bytes that are no batch. Build it again, once; if that does not help, the log itself is broken.

        The index is kept then, for it may lead beyond the broken place; and whoever asks for that again costs no other look.
        """
        if not attempt and str(error) != self._broken:
            if not here and not self.active:
                raise self._index_lost(str(error)) from error
            if self.rebuild_indexes(only_whole=True) == self.size:
                return
        self._broken = str(error)
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, self._broken) from error

    def batches(self, position: int) -> Iterator[tuple[BatchInfo, Callable[[], bytes]]]:
        """Batch by batch from a position: its header, and a way to get its bytes (then at position 0 of them)."""
        file = self.file
        size = self.size
        while position < size:
            chunk = file.read(position, min(SEEK_BYTES, size - position))
            at = 0
            while at + RECORDS_AT <= len(chunk):
                info = header_at(chunk, at)
                info.position = position + at
                if info.magic != MAGIC_V2 or info.size < RECORDS_AT or info.end > size:
                    raise KafkaError(
                        ErrorCode.CORRUPT_MESSAGE, f"no record batch at position {info.position} of {self.path(LOG)}"
                    )
                yield info, lambda info=info: file.read(info.position, info.size)  # type: ignore[misc]
                at += info.size
            if at == 0:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no record batch at position {position} of {self.path(LOG)}")
            position += at

    # --- timestamps

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp in the segment, NO_TIMESTAMP where no record has one."""
        known = self._max_timestamp
        return known if known is not None else self._find_max_timestamp()

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch that has the largest timestamp."""
        assert self.max_timestamp is not None
        return self._offset_of_max

    def _find_max_timestamp(self) -> int:
        """The time index's last entry, unless a batch behind it is newer: then the index was cut short, and is built again.

        A batch that is broken ends the look: who asks wants to append, or to know whether the segment is too old.
        """
        last = self.time_index.last()
        largest, offset = last.timestamp_ms, last.offset
        newer = False
        try:
            for info, _ in self.batches(self.index.position_of(last.offset)):
                if info.max_timestamp > largest and info.record_count:  # an empty one was left by compaction
                    largest, offset = info.max_timestamp, info.last_offset
                    newer = True
        except KafkaError:
            newer = False
        self._max_timestamp, self._offset_of_max = largest, offset
        if newer and not self.active:
            self.rebuild_indexes()
        return self._max_timestamp

    def age_base(self) -> int:
        """The timestamp from which `segment.ms` counts; NO_TIMESTAMP: count from the creation."""
        if self.first_timestamp is None:
            try:
                first = next(self.batches(0), None)
            except KafkaError:
                first = None  # it is broken
            self.first_timestamp = NO_TIMESTAMP if first is None else first[0].max_timestamp
        return self.first_timestamp

    # --- changing what is there

    def truncate(self, offset: int, now_ms: int | None = None) -> int:
        """Cut before the batch that holds `offset`. Returns the bytes cut off."""
        position = self.find(offset)
        index, time_index = self.index, self.time_index
        index.truncate(offset)
        time_index.truncate(offset)
        self._shrink_index_files()
        if self.has_aborted:
            self.replace_txn_index([entry for entry in self.txn_index if entry.last_offset < offset])
        cut_bytes = self.size - position
        if cut_bytes:
            self._forget_reserved()
            self.file.truncate(position)
            self.size = position
            self.flush_files()  # see `cut_off`
        if position == 0:
            self.first_timestamp = None
            if now_ms is not None:
                self.created_ms = now_ms
        self.bytes_since_entry = 0
        self.end_offset = max(self.base_offset, offset)
        self._max_timestamp = None
        return cut_bytes

    def cut_off(self, position: int) -> None:
        """Drop the bytes behind a position. The indexes know nothing of them: `rebuild_indexes` gave the position.

        Durable at once: the next append may begin a new segment at the recovery point, and flushes begin with that one.
        """
        self.file.truncate(position)
        self.size = position
        self.flush_files()

    def flush_files(self) -> None:
        self.file.flush()
        self._flush_indexes()

    def _flush_indexes(self) -> None:
        for suffix in self._index_suffixes():
            self._flush_file(suffix)

    def _index_suffixes(self) -> tuple[str, ...]:
        return (OFFSET_INDEX, TIME_INDEX, TXN_INDEX) if self.has_aborted else (OFFSET_INDEX, TIME_INDEX)

    def _flush_file(self, suffix: str) -> None:
        flush_file(self._disk, self.path(suffix))

    def _shrink_index_files(self) -> None:
        assert self._index is not None
        assert self._time_index is not None
        sizes = (
            (OFFSET_INDEX, self._index.persisted * OFFSET_ENTRY_BYTES),
            (TIME_INDEX, self._time_index.persisted * TIME_ENTRY_BYTES),
        )
        for suffix, size in sizes:
            file = self._disk.open(self.path(suffix), create=True)
            try:
                if file.size() > size:
                    file.truncate(size)
            finally:
                file.close()

    def rebuild_indexes(
        self,
        *,
        check_crc: bool = False,
        offset_limit: int = INT64_MAX,
        on_batch: Callable[[BatchInfo], None] | None = None,
        only_whole: bool = False,
    ) -> int:
        """Go through the whole log file and build both indexes from it. Returns the bytes of the batches that hold; `only_whole`:
        if that is not all the indexes stay as they are.

        `size` and `end_offset` are left alone: what follows from the answer is the caller's.
        """
        built = IndexBuilder(self.base_offset, self.index_interval_bytes)

        def account(info: BatchInfo) -> None:
            built.add(info.size, info.last_offset, info.max_timestamp if info.record_count else NO_TIMESTAMP)
            if on_batch is not None:
                on_batch(info)

        if not check_crc and on_batch is None and offset_limit == INT64_MAX:
            good = index_file(self.file, self.size, self.base_offset, built)
        else:
            good = scan_file(self.file, self.size, self.base_offset, offset_limit, check_crc, account)
        if not only_whole or good == self.size:
            self._take_indexes(built)
        return good

    def _index_lost(self, broken: str) -> IndexLost:
        build = partial(_build_indexes, self.file, self.size, self.base_offset, self.index_interval_bytes)
        return IndexLost(self, broken, build)

    def built_elsewhere(self, built: IndexBuilder, lost: IndexLost) -> None:
        """The index that was lost is here again; or the log itself is broken, see `_mistrust_index`."""
        if lost.broken and built.position < self.size:
            self._broken = lost.broken
        else:
            self._take_indexes(built)

    def _take_indexes(self, built: IndexBuilder) -> None:
        index, time_index = built.index, built.time_index
        time_index.append(built.max_timestamp, built.offset_of_max)
        self._index, self._time_index, self._index_checked = index, time_index, True
        self._max_timestamp, self._offset_of_max = built.max_timestamp, built.offset_of_max
        self.bytes_since_entry = built.position - built.entry_at
        self._replace_index_file(OFFSET_INDEX, index)
        self._replace_index_file(TIME_INDEX, time_index)
        if not self.active:
            self._cache.loaded(self)

    def _replace_index_file(self, suffix: str, index: OffsetIndex | TimeIndex) -> None:
        """Give a file the entries of an index that was built anew.

        What only lacked its last entries is continued, and may lose them again in a crash. What said something else is flushed:
        the segment may soon lie before the recovery point, where a crash would bring the old entries back, and nobody would
        doubt them.
        """
        entry_bytes = OFFSET_ENTRY_BYTES if suffix == OFFSET_INDEX else TIME_ENTRY_BYTES
        new = index.pending_bytes()
        index.persisted = len(index)
        file = self._disk.open(self.path(suffix), create=True)
        try:
            old = file.read(0, file.size())
            if not new.startswith(old) or len(old) % entry_bytes:
                file.truncate(0)
                file.write(0, [new])
                file.flush()
            elif len(old) < len(new):
                file.write(len(old), [new[len(old) :]])
        finally:
            file.close()


def _build_indexes(file: File, size: int, base_offset: int, interval_bytes: int) -> IndexBuilder:
    built = IndexBuilder(base_offset, interval_bytes)
    index_file(file, size, base_offset, built)
    return built


def _bytes_until(position: int, following: int) -> int:
    """How much to read for the headers from a position up to the next known batch, whose header may be needed too."""
    distance = following - position
    if distance > SEEK_BYTES:
        return RECORDS_AT  # one batch, most likely
    return distance + RECORDS_AT if distance > 0 else SEEK_BYTES
