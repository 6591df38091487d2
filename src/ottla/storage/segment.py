"""One segment of a log: a `.log` file of record batches and its indexes.

Owns finding a batch in the file, and the size, offsets and timestamps of its batches. Never decides when to roll, what to delete
or how far a reader may see; checks CRCs only while it rebuilds its indexes.

1. `size` is the bytes of whole batches; the file is longer only between a failed write and its truncation.
2. Only the active segment has index entries that are not in their files, and preallocated space behind its end.
3. A sealed segment has no open descriptor and no index in memory until it is read, and gives them up when `SegmentCache` evicts
   it. A descriptor is never closed under a reader: dropping the last reference closes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.ports import Disk, File, Random
from ottla.records.batch import MAGIC_V2, RECORDS_AT, BatchInfo, header_at
from ottla.storage.config import INT64_MAX, LogConfig
from ottla.storage.names import LOG, OFFSET_INDEX, TIME_INDEX, TXN_INDEX
from ottla.storage.offset_index import ENTRY_BYTES as OFFSET_ENTRY_BYTES
from ottla.storage.offset_index import OffsetIndex
from ottla.storage.reservation import Reservation
from ottla.storage.scan import SEEK_BYTES, IndexBuilder, index_file, scan_file, seek
from ottla.storage.segment_cache import SegmentCache
from ottla.storage.segment_files import SegmentFiles
from ottla.storage.segment_indexes import SegmentIndexes
from ottla.storage.time_index import ENTRY_BYTES as TIME_ENTRY_BYTES
from ottla.storage.time_index import TimeIndex
from ottla.storage.txn_index import TxnIndex
from ottla.types import NO_TIMESTAMP


class IndexLost(Exception):
    """The indexes of a sealed segment have to be rebuilt, which takes too long for the caller.

    Any thread may call `build`, which only reads the .log file; the result goes to `Segment.indexes_rebuilt`.
    """

    def __init__(self, segment: Segment, corruption: str, build: Callable[[], IndexBuilder]) -> None:
        super().__init__(f"{segment.path(OFFSET_INDEX)} has to be rebuilt")
        self.segment = segment
        self.corruption = corruption
        """Where the old index pointed to bytes that are no batch; "" if there was no index."""
        self.build = build


class Segment:
    def __init__(
        self,
        disk: Disk,
        dir: str,
        base_offset: int,
        index_interval_bytes: int,
        jitter_ms: int,
        now_ms: int,
        cache: SegmentCache,
    ) -> None:
        self.files = SegmentFiles(disk, dir, base_offset)
        self.indexes = SegmentIndexes(self.files)
        self.reservation = Reservation()
        self._cache = cache
        self.base_offset = base_offset
        self.end_offset = base_offset
        """Exclusive. For a sealed segment the base offset of the next one."""
        self.size = 0
        self.active = False
        self.created_ms = now_ms
        self.index_interval_bytes = index_interval_bytes
        self.jitter_ms = jitter_ms
        self.bytes_since_entry = 0
        self.first_timestamp: int | None = None
        """The largest timestamp of the first append, from which `segment.ms` counts. None: unknown so far."""
        self._max_timestamp: int | None = None
        self._offset_of_max = base_offset
        self._file: File | None = None
        self._corruption = ""
        """Where the .log file was last found corrupt although the index is right."""

    @classmethod
    def create(
        cls,
        disk: Disk,
        dir: str,
        base_offset: int,
        config: LogConfig,
        random: Random,
        now_ms: int,
        cache: SegmentCache,
        in_new_dir: bool = False,
    ) -> Segment:
        """A new, empty, active segment. Existing files of that name are left from a failed operation, and are emptied; in a new
        directory there are none."""
        segment = cls(disk, dir, base_offset, config.index_interval_bytes, config.draw_jitter_ms(random), now_ms, cache)
        if not in_new_dir and segment.files.exists(TXN_INDEX):
            disk.remove(segment.path(TXN_INDEX))
        for suffix in (OFFSET_INDEX, TIME_INDEX, LOG):  # the .log file last: it makes the segment exist
            file = disk.open(segment.path(suffix), create=True)
            if not in_new_dir and file.size():
                file.truncate(0)
            if suffix == LOG:
                segment._file = file
            else:
                file.close()
        segment.indexes.start_empty()
        segment._max_timestamp = NO_TIMESTAMP
        segment.active = True
        return segment

    @classmethod
    def existing(
        cls, disk: Disk, dir: str, base_offset: int, config: LogConfig, random: Random, now_ms: int, cache: SegmentCache
    ) -> Segment:
        """A sealed segment whose files exist. Its end offset is not known yet."""
        segment = cls(disk, dir, base_offset, config.index_interval_bytes, config.draw_jitter_ms(random), now_ms, cache)
        segment.size = disk.size(segment.path(LOG))
        return segment

    def replacement(self, created_ms: int) -> Segment:
        """A sealed segment of the same base offset, whose files compaction has to write."""
        files = self.files
        return Segment(
            files.disk, files.dir, self.base_offset, self.index_interval_bytes, self.jitter_ms, created_ms, self._cache
        )

    def path(self, suffix: str) -> str:
        return self.files.path(suffix)

    # --- loaded on demand

    @property
    def file(self) -> File:
        file = self._file
        if file is None:
            file = self._file = self.files.disk.open(self.path(LOG))
        if not self.active:
            self._cache.touch(self)
        return file

    @property
    def index(self) -> OffsetIndex:
        index = self.indexes.offset
        if index is None:
            index = self._load_index()
        elif not self.active:
            self._cache.touch(self)
        return index

    @property
    def time_index(self) -> TimeIndex:
        index = self.indexes.time
        if index is None:
            index = self._load_time_index()
        elif not self.active:
            self._cache.touch(self)
        return index

    @property
    def txn_index(self) -> TxnIndex:
        index = self.indexes.txn
        if index is None:
            index = self.indexes.load_txn()
            self._indexes_loaded()
        elif not self.active:
            self._cache.touch(self)
        return index

    def _load_index(self) -> OffsetIndex:
        if self.indexes.load_offset(self.size) is None:
            self.rebuild_indexes()
        else:
            self._indexes_loaded()
        assert self.indexes.offset is not None
        return self.indexes.offset

    def _load_time_index(self) -> TimeIndex:
        if self.indexes.load_time() is None:
            self.rebuild_indexes()
        else:
            self._indexes_loaded()
        assert self.indexes.time is not None
        return self.indexes.time

    def _indexes_loaded(self) -> None:
        if not self.active:
            self._cache.loaded(self)

    def verify_indexes(self) -> None:
        """Load the index files now, and rebuild them if they are corrupt."""
        self._load_index()
        self._load_time_index()
        assert self.max_timestamp is not None

    def evict(self) -> None:
        """Drop the descriptor and indexes of a sealed segment; they are loaded again on demand."""
        if not self.active:
            self._file = None
            self.indexes.evict()

    def use_cache(self, cache: SegmentCache) -> None:
        self._cache.forget(self)
        self._cache = cache
        self.evict()

    # --- life

    def activate(self) -> None:
        """Become the active segment, again after a truncation."""
        self._cache.forget(self)
        self.active = True

    def seal(self) -> None:
        """Complete the indexes: no append follows."""
        self._complete_indexes()
        self.release_reserved()
        self.active = False
        self._cache.loaded(self)

    def finish_indexes(self) -> list[str]:
        """Complete the indexes of the active segment for a clean shutdown. Returns the files to flush: the next start trusts
        them."""
        if not self.active or self.indexes.offset is None:
            return []
        self._complete_indexes()
        return [self.path(suffix) for suffix in self.indexes.suffixes]

    def _complete_indexes(self) -> None:
        self.time_index.append(self.max_timestamp, self._offset_of_max)
        self.indexes.write_pending()

    def close(self) -> None:
        """Close the descriptor. `finish_indexes` comes before."""
        self._cache.forget(self)
        self.release_reserved()
        file, self._file = self._file, None
        if file is not None:
            file.close()
        self.indexes.evict()

    def retire(self) -> None:
        """The log is deleted: reads that began keep their descriptors, and this segment opens none."""
        self.release_reserved()
        self.active = False
        self._cache.forget(self)
        self.evict()

    def mark_deleted(self) -> list[str]:
        """Rename the files to `.deleted`; returns their paths. Reads that began keep their descriptors."""
        self.release_reserved()
        marked = self.files.mark_deleted()
        self._cache.forget(self)
        return marked

    # --- append

    def reserve(self, written_bytes: int, segment_bytes: int) -> None:
        """Preallocate space before an append after which the segment has `written_bytes`."""
        self.reservation.extend(self.files.disk, self.files.dir, self.file, self.size, written_bytes, segment_bytes)

    def release_reserved(self) -> None:
        self.reservation.release(self._file, self.size)

    def truncate_torn_write(self) -> None:
        """Remove the bytes of a failed write."""
        self.reservation.forget()
        self.file.truncate(self.size)

    def added(self, last_offset: int, max_timestamp: int, size: int) -> None:
        """A batch was written at the end: update size, offsets, timestamps and indexes."""
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

    # --- find

    def find(self, offset: int, rebuild_inline: bool = True) -> int:
        """The position of the first batch that ends at or behind an offset; `size` if there is none."""
        return self.find_batch(offset, rebuild_inline)[0]

    def find_batch(self, offset: int, rebuild_inline: bool = True) -> tuple[int, int, int]:
        """The first batch that ends at or behind an offset: position, end position, last offset. Position `size`: there is none.

        Without `rebuild_inline`, a missing index raises IndexLost.
        """
        for attempt in (0, 1):
            start, following = self._index_for(rebuild_inline).around(offset)
            try:
                if following - start > SEEK_BYTES:
                    # Large batches have an index entry each: the offset is mostly in the batch of the next entry.
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
                self._index_misled(attempt, error, rebuild_inline)
        raise AssertionError

    def first_batch(self) -> tuple[int, int, int]:
        """As `find_batch` for the first batch, without an index. CORRUPT_MESSAGE if the file does not begin with a batch."""
        try:
            found, _, last, end = seek(self.file, self.size, 0, self.base_offset, self.base_offset, INT64_MAX, RECORDS_AT)
        except MalformedInput as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        return found, end, last

    def batch_boundary_before(self, start: int, limit: int, min_one_batch: bool, rebuild_inline: bool = True) -> tuple[int, int]:
        """The last boundary between batches in [start, limit], and the offset behind it.

        With `min_one_batch` it is at least the end of the batch at `start`, which may be behind the limit.
        """
        for attempt in (0, 1):
            before, following = self._index_for(rebuild_inline).around_position(limit)
            position = max(start, before)
            try:
                found, base, last, end = seek(
                    self.file, self.size, position, self.base_offset, INT64_MAX, limit, _bytes_until(position, following)
                )
            except MalformedInput as error:
                self._index_misled(attempt, error, rebuild_inline)
                continue
            if found == self.size:
                return found, self.end_offset
            return (end, last + 1) if found == start and min_one_batch else (found, base)
        raise AssertionError

    def find_end_offset(self) -> int:
        """The offset behind the last batch, from the file. MalformedInput if the file does not end with a whole batch."""
        last = seek(self.file, self.size, self.index.last_position(), self.base_offset, INT64_MAX, INT64_MAX)[2]
        return last + 1

    def _index_for(self, rebuild_inline: bool) -> OffsetIndex:
        if self.indexes.offset is None and not rebuild_inline and not self.active:
            if self.indexes.load_offset(self.size) is None:
                raise self._index_lost("")
            self._indexes_loaded()
        return self.index

    def _index_misled(self, attempt: int, error: MalformedInput, rebuild_inline: bool) -> None:
        """An index pointed to bytes that are no batch. Rebuild it once; if that does not help, the .log file is corrupt.

        The index is kept then: it may lead past the corruption. The next read of that place fails without another rebuild.
        """
        if not attempt and str(error) != self._corruption:
            if not rebuild_inline and not self.active:
                raise self._index_lost(str(error)) from error
            if self.rebuild_indexes(only_whole=True) == self.size:
                return
        self._corruption = str(error)
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, self._corruption) from error

    def batches(self, position: int) -> Iterator[tuple[BatchInfo, Callable[[], bytes]]]:
        """The header of each batch from a position on, and a function that reads the batch."""
        file = self.file
        size = self.size
        while position < size:
            chunk = file.read(position, min(SEEK_BYTES, size - position))
            at = 0
            while at + RECORDS_AT <= len(chunk):
                info = header_at(chunk, at)
                info.position = position + at
                if info.magic != MAGIC_V2 or info.size < RECORDS_AT or info.end > size:
                    raise self._no_batch_at(info.position)
                yield info, lambda info=info: file.read(info.position, info.size)  # type: ignore[misc]
                at += info.size
            if at == 0:
                raise self._no_batch_at(position)
            position += at

    def _no_batch_at(self, position: int) -> KafkaError:
        return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"no record batch at position {position} of {self.path(LOG)}")

    # --- timestamps

    @property
    def max_timestamp(self) -> int:
        """The largest timestamp of the segment; NO_TIMESTAMP if no record has one."""
        known = self._max_timestamp
        return known if known is not None else self._find_max_timestamp()

    @property
    def offset_of_max_timestamp(self) -> int:
        """The last offset of the first batch that has the largest timestamp."""
        assert self.max_timestamp is not None
        return self._offset_of_max

    def _find_max_timestamp(self) -> int:
        """The last entry of the time index, or a newer batch behind it: then the index lacks entries, and is rebuilt.

        Corruption ends the search: the caller wants to append or to apply retention.
        """
        last = self.time_index.last()
        largest, offset = last.timestamp_ms, last.offset
        newer = False
        try:
            for info, _ in self.batches(self.index.position_of(last.offset)):
                if info.max_timestamp > largest and info.record_count:  # compaction leaves empty batches
                    largest, offset = info.max_timestamp, info.last_offset
                    newer = True
        except KafkaError:
            newer = False
        self._max_timestamp, self._offset_of_max = largest, offset
        if newer and not self.active:
            self.rebuild_indexes()
        return self._max_timestamp

    def rolling_base_timestamp(self) -> int:
        """The timestamp from which `segment.ms` counts; NO_TIMESTAMP: it counts from the creation of the segment."""
        if self.first_timestamp is None:
            try:
                first = next(self.batches(0), None)
            except KafkaError:
                first = None  # corrupt
            self.first_timestamp = NO_TIMESTAMP if first is None else first[0].max_timestamp
        return self.first_timestamp

    # --- truncate

    def truncate(self, offset: int, now_ms: int | None = None) -> int:
        """Truncate before the batch that holds `offset`. Returns the number of bytes removed."""
        position = self.find(offset)
        assert self.index is not None
        assert self.time_index is not None
        self.indexes.truncate(offset)
        removed_bytes = self.size - position
        if removed_bytes:
            self.reservation.forget()
            self.file.truncate(position)
            self.size = position
            self.flush_files()  # see `truncate_file`
        if position == 0:
            self.first_timestamp = None
            if now_ms is not None:
                self.created_ms = now_ms
        self.bytes_since_entry = 0
        self.end_offset = max(self.base_offset, offset)
        self._max_timestamp = None
        return removed_bytes

    def truncate_file(self, position: int) -> None:
        """Truncate the .log file, durably. The indexes have no entries behind the position.

        Flushed at once: the next append may start a new segment at the recovery point, and flushes start with that one.
        """
        self.file.truncate(position)
        self.size = position
        self.flush_files()

    def flush_files(self) -> None:
        self.file.flush()
        for suffix in self.indexes.suffixes:
            self.files.flush(suffix)

    # --- rebuild indexes

    def rebuild_indexes(
        self,
        *,
        check_crc: bool = False,
        offset_limit: int = INT64_MAX,
        on_batch: Callable[[BatchInfo], None] | None = None,
        only_whole: bool = False,
    ) -> int:
        """Scan the .log file and rebuild the offset and time index. Returns the bytes of valid batches. With `only_whole` the
        indexes are kept unless all of the file is valid.

        Leaves `size` and `end_offset` alone.
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
            self._replace_indexes(built)
        return good

    def _index_lost(self, corruption: str) -> IndexLost:
        build = partial(_build_indexes, self.file, self.size, self.base_offset, self.index_interval_bytes)
        return IndexLost(self, corruption, build)

    def indexes_rebuilt(self, built: IndexBuilder, lost: IndexLost) -> None:
        """Use the indexes that a worker rebuilt, unless the .log file itself is corrupt: see `_index_misled`."""
        if lost.corruption and built.position < self.size:
            self._corruption = lost.corruption
        else:
            self._replace_indexes(built)

    def _replace_indexes(self, built: IndexBuilder) -> None:
        built.time_index.append(built.max_timestamp, built.offset_of_max)
        self._max_timestamp, self._offset_of_max = built.max_timestamp, built.offset_of_max
        self.bytes_since_entry = built.position - built.entry_at
        self.indexes.replace(built.index, built.time_index)
        self._indexes_loaded()


def _build_indexes(file: File, size: int, base_offset: int, interval_bytes: int) -> IndexBuilder:
    built = IndexBuilder(base_offset, interval_bytes)
    index_file(file, size, base_offset, built)
    return built


def _bytes_until(position: int, following: int) -> int:
    """How much to read for the headers from a position up to the next indexed batch, whose header may be needed too."""
    distance = following - position
    if distance > SEEK_BYTES:
        return RECORDS_AT  # most likely one batch
    return distance + RECORDS_AT if distance > 0 else SEEK_BYTES
