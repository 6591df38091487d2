"""The segments of one log: bytes and offsets, nothing about producers, leader epochs or watermarks (`log.Log` has those).

Owns the list of segments and the log end offset: append, roll, read, truncate, replace. Removed files are renamed and handed out
for removal later; what has to be flushed is collected in `unflushed`.

1. Segments are disjoint and ascending. There is always at least one; the last is the active one, and only it is written.
2. A failed write leaves the log as it was: its torn bytes are truncated, or overwritten by the next append.
3. The cost of an append or a read does not depend on the length of the log.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

from ottla.errors import MalformedInput
from ottla.ports import Disk, FileRange, Random
from ottla.records.batch import RECORDS_AT, BatchInfo, scan_batches
from ottla.storage.config import LogConfig
from ottla.storage.deleted_files import DeletedFiles
from ottla.storage.flush import Unflushed
from ottla.storage.names import CLEANED, SEGMENT_SUFFIXES, SWAP, TXN_INDEX
from ottla.storage.offset_index import INT32_MAX
from ottla.storage.results import ReadInfo
from ottla.storage.segment import Segment
from ottla.storage.segment_cache import SegmentCache
from ottla.storage.txn_index import AbortedTxn
from ottla.types import NO_OFFSET, Buffer

_EMPTY_BATCHES_MAX: Final = 64
_KNOWN_POSITIONS_MAX: Final = 64


class LocalLog:
    def __init__(
        self,
        disk: Disk,
        random: Random,
        dir: str,
        config: LogConfig,
        segments: list[Segment],
        recovery_point: int,
        cache: SegmentCache,
    ) -> None:
        """`segments` are in order; the last one becomes the active one."""
        self.disk = disk
        self.random = random
        self._cache = cache
        self._config = config
        self._segment_ms = config.segment_ms_max
        self.segment_bytes = config.segment_bytes
        self.dir = dir
        self.segments = segments
        self.bases = [segment.base_offset for segment in segments]
        """Both to be changed here only."""
        self.active = segments[-1]
        self.log_end_offset = self.active.end_offset
        self.size_bytes = sum(segment.size for segment in segments)
        self.truncations = 0
        """How often the end of the log was truncated."""
        self.replacements = 0
        """How often compaction replaced segments."""
        self.deleted = DeletedFiles()
        self.unflushed = Unflushed([segment for segment in segments[:-1] if segment.end_offset > recovery_point])
        self._positions: dict[int, tuple[Segment, int]] = {}
        """By offset: segment and position. Filled with the ends of recent reads, which is where the next reads begin."""
        self._with_aborted = [segment for segment in segments if segment.indexes.has_aborted]
        self._end_offset_seen = NO_OFFSET
        """The log end offset at the last `release_if_idle`."""

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segment_ms = config.segment_ms_max
        self.segment_bytes = config.segment_bytes
        for segment in self.segments:
            segment.index_interval_bytes = config.index_interval_bytes

    def segments_from(self, offset: int) -> list[Segment]:
        """The segment that holds an offset, and all behind it."""
        return self.segments[max(bisect_right(self.bases, offset) - 1, 0) :]

    # --- append

    def append(self, data: Buffer, batches: list[BatchInfo], max_timestamp: int) -> None:
        """Write batches, which have their offsets, to the active segment: one write. On OSError the log is as before."""
        size = len(data)
        segment = self.active
        position = segment.size
        if position + size > segment.reservation.next_at:
            segment.reserve(position + size, self.segment_bytes)
        try:
            segment.file.write(position, (data,))
        except OSError:
            try:
                segment.truncate_torn_write()
            except OSError:
                pass  # the data directory goes offline anyway, and recovery truncates the file
            raise
        if position == 0:
            segment.first_timestamp = max_timestamp
        for batch in batches:
            segment.added(batch.base_offset + batch.last_offset_delta, batch.max_timestamp, batch.size)
        self.size_bytes += size
        self.log_end_offset = segment.end_offset

    def due_to_roll(self, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        """Whether an append needs a new segment: by size, offset range, age, or a full index."""
        segment = self.active
        if segment.size == 0:
            return last_offset - segment.base_offset > INT32_MAX
        if segment.size + size > self.segment_bytes or last_offset - segment.base_offset > INT32_MAX:
            return True
        base_ms = segment.first_timestamp
        if base_ms is None:
            base_ms = segment.rolling_base_timestamp()
        waited_ms = max_timestamp - base_ms if base_ms >= 0 else now_ms - segment.created_ms
        if waited_ms > self._segment_ms - segment.jitter_ms:
            return True
        # Most appends add no index entry: only those that may are checked for room.
        may_be_indexed = segment.bytes_since_entry + size > segment.index_interval_bytes
        return may_be_indexed and not segment.has_room(self._config.index_bytes_max)

    def roll(self, base_offset: int, now_ms: int) -> None:
        """Seal the active segment and start a new one."""
        sealed = self.active
        segment = self._new_segment(base_offset, now_ms)
        sealed.seal()
        self.unflushed.sealed.append(sealed)
        sealed.end_offset = base_offset
        self._add(segment)

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        return Segment.create(self.disk, self.dir, base_offset, self._config, self.random, now_ms, self._cache)

    def _add(self, segment: Segment) -> None:
        self.segments.append(segment)
        self.bases.append(segment.base_offset)
        self.active = segment
        self.unflushed.dir = True

    def release_if_idle(self) -> None:
        """Release preallocated space if nothing was appended since the last call."""
        if self._end_offset_seen == self.log_end_offset:
            self.active.release_reserved()
        self._end_offset_seen = self.log_end_offset

    # --- read

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool, rebuild_inline: bool) -> ReadInfo:
        """See `Log.read`. `offset` is within the log."""
        if offset >= end_offset or offset == self.log_end_offset:
            return ReadInfo([], 0, offset)
        segment, start, first_end, first_last = self._locate(offset, rebuild_inline)
        if end_offset >= segment.end_offset:
            limit, limit_offset = segment.size, segment.end_offset
        else:
            known = self._positions.get(end_offset)
            if known is None or known[0] is not segment:
                limit = segment.find(end_offset, rebuild_inline)
                self._remember(end_offset, segment, limit)
            else:
                limit = known[1]
            limit_offset = end_offset
        if limit - start > max_bytes:
            if first_end - start <= max_bytes:
                boundary, boundary_offset = segment.batch_boundary_before(start, start + max_bytes, min_one_batch, rebuild_inline)
            elif min_one_batch:
                boundary, boundary_offset = first_end, first_last + 1
            else:
                boundary, boundary_offset = start, offset
            if boundary == start:
                return ReadInfo([], 0, offset, first_batch_too_large=True)
            if boundary < limit:
                limit, limit_offset = boundary, boundary_offset
        if limit <= start:
            return ReadInfo([], 0, offset)
        if limit_offset not in self._positions:
            self._remember(limit_offset, segment, limit)
        size = limit - start
        return ReadInfo([FileRange(segment.file, start, size)], size, limit_offset)

    def is_only_empty_batches(self, info: ReadInfo) -> bool:
        """Whether a read returned nothing but a few batches that compaction emptied."""
        if not info.size or info.size % RECORDS_AT or info.size > _EMPTY_BATCHES_MAX * RECORDS_AT:
            return False
        read = info.ranges[0]
        try:
            batches, _ = scan_batches(read.file.read(read.position, read.size))
        except MalformedInput:
            return False  # the consumer will find the corruption
        return not any(batch.record_count for batch in batches)

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        positions = self._positions
        if len(positions) >= _KNOWN_POSITIONS_MAX:
            del positions[next(iter(positions))]
        positions[offset] = (segment, position)

    def _locate(self, offset: int, rebuild_inline: bool) -> tuple[Segment, int, int, int]:
        """The batch that holds an offset below the log end, or the first one behind it: segment, position, end position, last
        offset. The last two are -1 where the position was remembered."""
        known = self._positions.get(offset)
        if known is not None and known[1] < known[0].size:
            return known[0], known[1], -1, -1
        segment, slot = self.active, -1
        if offset < segment.base_offset:
            slot = bisect_right(self.bases, offset) - 1
            segment = self.segments[slot]
        while True:
            if offset > segment.base_offset:
                position, end, last = segment.find_batch(offset, rebuild_inline)
            elif segment.size:
                position, end, last = segment.first_batch()
            else:
                position, end, last = 0, -1, -1
            if position < segment.size or segment is self.active:
                return segment, position, end, last
            slot += 1  # compaction removed the end of the segment
            segment = self.segments[slot]

    # --- aborted transactions

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that overlap a range of offsets, in the order of their markers (T02)."""
        found: list[AbortedTxn] = []
        for segment in self._with_aborted:
            if segment.end_offset > start_offset and segment.txn_index.collect(start_offset, end_offset, found):
                break
        return found

    def add_aborted(self, aborted: AbortedTxn) -> None:
        """An abort marker was appended to the active segment."""
        segment = self.active
        if not segment.indexes.has_aborted:
            self.unflushed.dir = True
            self._with_aborted.append(segment)
        segment.indexes.add_aborted(aborted)

    def find_aborted(self) -> None:
        """Update which segments have a transaction index."""
        self._with_aborted = [segment for segment in self.segments if segment.indexes.has_aborted]

    def take_unflushed_txn_indexes(self) -> list[str]:
        paths = []
        for segment in self._with_aborted:
            if segment.indexes.txn_dirty:
                paths.append(segment.path(TXN_INDEX))
                segment.indexes.txn_dirty = False
        return paths

    # --- removing and replacing

    def remove_segments(self, first: int, end: int) -> list[int]:
        """Take segments out of the log and rename their files. Reads that began keep their descriptors. Returns their bases."""
        removed = self.segments[first:end]
        bases = self.bases[first:end]
        del self.segments[first:end]
        del self.bases[first:end]
        self._positions.clear()
        self.unflushed.dir = True
        self.unflushed.sealed = [segment for segment in self.unflushed.sealed if segment not in removed]
        for segment in removed:
            self.size_bytes -= segment.size
            self.deleted.add(segment.mark_deleted(), segment)
        self.find_aborted()
        return bases

    def truncate_to(self, offset: int, now_ms: int | None) -> None:
        """Drop all batches from the one that holds `offset` on. The offset is at or behind the first segment's base.
        CORRUPT_MESSAGE if that batch cannot be found."""
        keep = max(bisect_right(self.bases, offset), 1)
        self.segments[keep - 1].find(offset)  # fails before anything has changed
        self.truncations += 1
        self._positions.clear()
        while keep < len(self.segments):
            # From the last segment backwards, durably before the truncation: a crash in between must leave no gap.
            self.remove_segments(len(self.segments) - 1, len(self.segments))
            if keep == len(self.segments):
                self.disk.flush_dir(self.dir)
        segment = self.segments[-1]
        segment.activate()
        self.active = segment
        self.size_bytes -= segment.truncate(offset, now_ms)
        self.log_end_offset = offset
        self.find_aborted()

    def truncate_fully_and_start_at(self, offset: int, now_ms: int) -> None:
        """Drop all segments; the next record has `offset`."""
        self.truncations += 1
        self.remove_segments(0, len(self.segments))
        self._add(self._new_segment(offset, now_ms))
        self.size_bytes = 0
        self.log_end_offset = offset

    def replace_segments(self, replaced: Sequence[Segment], cleaned: Segment) -> None:
        """Replace consecutive segments with one (compaction). The files of `cleaned` are flushed and named `.cleaned`.

        The order of the renames lets recovery finish a swap that a crash interrupted: every new file is `.swap` before the first
        old one goes, and gets its final name after the last old one is gone.
        """
        slot = self.bases.index(replaced[0].base_offset)
        end = slot + len(replaced)
        assert self.segments[slot:end] == list(replaced)
        assert end < len(self.segments), "the active segment is never replaced"
        self.replacements += 1
        # A segment exists if its .log file does: that file becomes .swap last and gets its final name first.
        cleaned.files.rename(CLEANED, SWAP, reversed(SEGMENT_SUFFIXES))
        cleaned.end_offset = replaced[-1].end_offset
        self.remove_segments(slot, end)
        cleaned.files.rename(SWAP, "", SEGMENT_SUFFIXES)
        self.segments.insert(slot, cleaned)
        self.bases.insert(slot, cleaned.base_offset)
        self.size_bytes += cleaned.size
        cleaned.indexes.has_aborted = cleaned.files.exists(TXN_INDEX)
        self.find_aborted()

    def rename_dir(self, path: str) -> None:
        """Rename the log's directory. The next flush makes the name durable."""
        self.disk.rename(self.dir, path)
        self.deleted.rename_dir(self.dir, path)
        self.dir = path
        for segment in self.segments:
            segment.files.dir = path
        self.unflushed.parent_dir = True

    def use_cache(self, cache: SegmentCache) -> None:
        """Replace the segment cache: the thread that loaded the segments is not the one that reads them."""
        self._cache = cache
        for segment in self.segments:
            segment.use_cache(cache)

    def close(self) -> None:
        self.active.finish_indexes()
        for segment in self.segments:
            segment.close()
        self._positions.clear()
        self.deleted.remove_all(self.disk)

    def delete(self, path: str) -> None:
        """Rename the directory for deletion, durably. Reads that began keep their descriptors."""
        self.disk.rename(self.dir, path)
        self.disk.flush_dir(path.rpartition("/")[0])
        self.deleted.clear()
        self._positions.clear()
        for segment in self.segments:
            segment.retire()
