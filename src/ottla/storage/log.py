"""One partition's log: an ordered row of segments, appended at its end, cut at its start, read anywhere.

Owns: offsets. It gives them, finds them, forgets them. It asks `producers` whether a producer's batch may come next, and tells it
what was written. Never judges records (`records.validate` did), never decides who may read
how far (the caller names an end), never waits: flushing is a plan that others run, removed files are handed out for removal.

Invariants
1. log_start_offset <= high_watermark <= log_end_offset, and 0 <= recovery_point <= log_end_offset.
2. Segments are disjoint and ascending; there is always one, the last is the active one, and only it is written.
3. An offset, once given to a record that was acknowledged, is never given again, except below a truncation.
4. A failed write leaves the log as it was; its torn bytes are cut off, or overwritten by the next append.
5. The work of an append or a read does not depend on how long the log is.
6. `producers` is the state of all records in the log, neither more nor less.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.ports import Disk, FileRange, Random
from ottla.records.batch import RECORDS_AT, BatchInfo, batch_crc_ok, scan_batches, stamp
from ottla.records.own import own_marker
from ottla.records.validate import Checked
from ottla.storage import retention, time_lookup
from ottla.storage.config import INT64_MAX, LogConfig
from ottla.storage.epoch_cache import EpochCache
from ottla.storage.names import (
    CLEANED,
    DELETE_DIR,
    OFFSET_INDEX,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    retired_dir,
)
from ottla.storage.offset_index import INT32_MAX
from ottla.storage.producer_replay import feed, feed_marker, rebuild
from ottla.storage.producer_state import ProducerStates
from ottla.storage.results import AppendInfo, FlushPlan, OffsetByTime, ReadInfo, UnexpectedOffset
from ottla.storage.segment import Segment, SegmentCache
from ottla.storage.snapshot import Snapshots
from ottla.storage.txn_index import AbortedTxn
from ottla.types import NO_OFFSET, NO_TIMESTAMP, Buffer, OffsetAndEpoch, TopicPartition

__all__ = ["AppendInfo", "FlushPlan", "Log", "OffsetByTime", "ReadInfo", "UnexpectedOffset"]

_EMPTY_BATCHES_MAX: Final = 64
_PLACES_MAX: Final = 64


@dataclass(slots=True)
class _Deleted:
    paths: list[str]
    due_ms: int | None = None
    keeps: list[Segment] = field(default_factory=list)
    """The segments, so that their descriptors live until the files go."""


class Log:
    __slots__ = (
        "_bases",
        "_cache",
        "_config",
        "_deleted",
        "_dir_dirty",
        "_disk",
        "_high_watermark",
        "_metadata_dirty",
        "_parent_dirty",
        "_places",
        "_random",
        "_replacements",
        "_rested_at",
        "_sealed_unflushed",
        "_segment_ms",
        "_segments",
        "_truncations",
        "_unfinished",
        "_with_aborted",
        "active",
        "cleaned_offset",
        "closed",
        "dir",
        "epochs",
        "flush_messages",
        "last_flush_ms",
        "log_end_offset",
        "log_start_offset",
        "producers",
        "recovery_point",
        "size_bytes",
        "snapshots",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        disk: Disk,
        random: Random,
        dir: str,
        topic_partition: TopicPartition,
        topic_id: bytes,
        config: LogConfig,
        epochs: EpochCache,
        segments: list[Segment],
        log_start_offset: int,
        recovery_point: int,
        cache: SegmentCache,
        now_ms: int,
        producers: ProducerStates,
        snapshots: Snapshots,
    ) -> None:
        """Of segments that recovery found in order; the last one becomes the active one."""
        self._disk = disk
        self._random = random
        self.dir = dir
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self._config = config
        self._segment_ms = config.segment_ms_max
        self.flush_messages = config.flush_messages
        self.epochs = epochs
        self.producers = producers
        self.snapshots = snapshots
        self._cache = cache
        self._segments = segments
        self._bases = [segment.base_offset for segment in segments]
        self.active = segments[-1]
        self.log_start_offset = log_start_offset
        self.log_end_offset = self.active.end_offset
        self.recovery_point = min(recovery_point, self.log_end_offset)
        self._high_watermark = log_start_offset
        self.size_bytes = sum(segment.size for segment in segments)
        self.last_flush_ms = now_ms
        self.cleaned_offset: int | None = None
        """Compaction has been over all before it: the first dirty offset. None: never."""
        self.closed = False
        self._deleted: list[_Deleted] = []
        self._dir_dirty = True
        self._parent_dirty = True
        self._metadata_dirty = False
        self._unfinished: FlushPlan | None = None
        """The last plan, until `flushed` hears of it: it may never have run."""
        self._sealed_unflushed = [segment for segment in segments[:-1] if segment.end_offset > recovery_point]
        """Sealed since the last flush: their index files are complete, but perhaps not on the disk."""
        self._truncations = 0
        self._replacements = 0
        self._rested_at = NO_OFFSET
        self._places: dict[int, tuple[Segment, int]] = {}
        """Where some offsets stand: the ends of the last reads, which is where the next ones begin."""
        self._with_aborted: list[Segment] = []
        self._find_aborted()

    # --- what it is

    @property
    def config(self) -> LogConfig:
        return self._config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self._config = config
        self._segment_ms = config.segment_ms_max
        self.flush_messages = config.flush_messages
        for segment in self._segments:
            segment.index_interval_bytes = config.index_interval_bytes

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self._high_watermark = min(max(offset, self.log_start_offset), self.log_end_offset)
        if self.producers.first_unstable_offset != INT64_MAX:
            self.producers.replicated(self._high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """Up to where every transaction is decided, and its marker below the high watermark."""
        unstable = self.producers.first_unstable_offset
        if unstable >= self._high_watermark:
            return self._high_watermark
        return max(unstable, self.log_start_offset)

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    @property
    def segment_count(self) -> int:
        return len(self._segments)

    @property
    def first_base_offset(self) -> int:
        return self._bases[0]

    @property
    def segment_bases(self) -> list[int]:
        return list(self._bases)

    @property
    def segments(self) -> tuple[Segment, ...]:
        return tuple(self._segments)

    @property
    def truncations(self) -> int:
        """Changes when the log was cut at its end."""
        return self._truncations

    @property
    def changes(self) -> tuple[int, int]:
        """Changes with every cut at the end and every compaction: what was read before may not fit what is read after."""
        return self._truncations, self._replacements

    @property
    def unflushed_messages(self) -> int:
        return self.log_end_offset - max(self.recovery_point, self.log_start_offset)

    def due_to_flush(self, now_ms: int) -> bool:
        """`flush.messages` or `flush.ms` is reached."""
        return self.unflushed_messages > 0 and (
            self.unflushed_messages >= self._config.flush_messages or now_ms - self.last_flush_ms >= self._config.flush_ms
        )

    # --- append

    def append(
        self,
        checked: Checked,
        leader_epoch: int,
        now_ms: int,
        *,
        from_client: bool = True,
        verified: bool = False,
        bumps_epochs: bool = False,
    ) -> AppendInfo:
        """As leader: give the batches their offsets and write them.

        A batch with a producer id must follow that producer's last one; a batch that is here already is not written again, and
        the answer tells where it is. `verified` and `bumps_epochs`: see `ProducerStates.check`.
        """
        buffer = checked.buffer
        batches = checked.batches
        first_offset = offset = self.log_end_offset
        of_producer = False
        for batch in batches:
            if batch.producer_id >= 0:
                of_producer = True
                if not from_client:
                    self.producers.check_coordinator(batch)
                    continue
                written = self.producers.check(batch, verified=verified, bumps_epochs=bumps_epochs)
                if written is not None:
                    append_time_ms = written.timestamp if checked.log_append_time_ms >= 0 else NO_TIMESTAMP
                    return AppendInfo(
                        written.first_offset, written.last_offset, append_time_ms, self.log_start_offset, 0, duplicate=True
                    )
        # Before they are stamped: what is refused stays as it came, so that whoever looks at it again sees the same.
        if len(buffer) > self._config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(buffer)} bytes of records exceed segment.bytes={self._config.segment_bytes} of {self.topic_partition}",
            )
        for batch in batches:
            stamp(buffer, batch, offset, leader_epoch)
            offset += batch.last_offset_delta + 1
        rolled = self._write(buffer, batches, checked.max_timestamp, now_ms, leader_epoch)
        if of_producer:
            for batch in batches:
                if batch.producer_id >= 0:
                    self.producers.wrote(batch)
        return AppendInfo(
            first_offset,
            offset - 1,
            checked.log_append_time_ms,
            self.log_start_offset,
            len(buffer),
            rolled,
        )

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        leader_epoch: int,
        now_ms: int,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """As leader: the control batch that ends a producer's transaction. INVALID_PRODUCER_EPOCH and
        TRANSACTION_COORDINATOR_FENCED where a later one was here before (T12)."""
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        offset = self.log_end_offset
        marker = own_marker(commit, coordinator_epoch, producer_id, producer_epoch, now_ms)
        batch = marker.buffer
        stamp(batch, marker.batches[0], offset, leader_epoch)
        rolled = self._write(batch, marker.batches, now_ms, now_ms, leader_epoch)
        aborted = feed_marker(self.producers, marker.batches[0], commit, coordinator_epoch)
        if aborted is not None:
            self._note_aborted(aborted)
        return AppendInfo(offset, offset, NO_TIMESTAMP, self.log_start_offset, len(batch), rolled)

    def append_as_follower(self, records: Buffer, now_ms: int) -> AppendInfo:
        """Batches as the leader gave them, offsets and epochs included. A cut-off batch at the end is left out.

        UnexpectedOffset where they do not continue the log; CORRUPT_MESSAGE where a batch is damaged. Nothing is kept then.
        """
        try:
            batches, end = scan_batches(records)
        except MalformedInput as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        if not batches:
            end_offset = self.log_end_offset
            return AppendInfo(end_offset, end_offset - 1, NO_TIMESTAMP, self.log_start_offset, 0)
        first_offset, next_offset = batches[0].base_offset, self.log_end_offset
        max_timestamp = NO_TIMESTAMP
        for batch in batches:
            if batch.base_offset < next_offset:
                raise UnexpectedOffset(
                    f"{self.topic_partition} ends at {self.log_end_offset}, but was to continue with offset {batch.base_offset}",
                    first_offset,
                    batches[-1].last_offset,
                )
            if not batch_crc_ok(records, batch):
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE, f"batch at offset {batch.base_offset} of {self.topic_partition} is damaged"
                )
            next_offset = batch.next_offset
            max_timestamp = max(max_timestamp, batch.max_timestamp)
        if end < len(records):
            records = memoryview(records)[:end]
        rolled = self._write(records, batches, max_timestamp, now_ms, None)
        self._note_producers(records, batches)
        return AppendInfo(first_offset, next_offset - 1, NO_TIMESTAMP, self.log_start_offset, end, rolled)

    def _write(self, data: Buffer, batches: list[BatchInfo], max_timestamp: int, now_ms: int, leader_epoch: int | None) -> bool:
        """One write for all batches, in one segment however large they are. On OSError the log is as before; an epoch noted for
        them is taken back."""
        size = len(data)
        last_offset = batches[-1].last_offset
        rolled = self._due_to_roll(size, max_timestamp, last_offset, now_ms)
        if rolled:
            self._roll(batches[0].base_offset, now_ms)
        known_epochs = self._note_epochs(batches, leader_epoch)
        segment = self.active
        position = segment.size
        if position + size > segment.reserve_at:
            segment.reserve(position + size, self._config.segment_bytes)
        try:
            segment.file.write(position, (data,))
        except OSError:
            if known_epochs is not None:
                self.epochs.restore(known_epochs)
            try:
                segment.cut_torn()
            except OSError:
                pass  # the directory is lost anyway, and recovery cuts it off
            raise
        if position == 0:
            segment.first_timestamp = max_timestamp
        for batch in batches:
            segment.added(batch.base_offset + batch.last_offset_delta, batch.max_timestamp, batch.size)
        self.size_bytes += size
        self.log_end_offset = last_offset + 1
        return rolled

    def _note_epochs(self, batches: list[BatchInfo], leader_epoch: int | None) -> list[tuple[int, int]] | None:
        """Tell the epoch cache of new epochs. Returns what it knew before, None if there was nothing new."""
        latest = self.epochs.latest
        if leader_epoch is not None:
            if leader_epoch == latest or leader_epoch < 0:
                return None
        elif all(batch.leader_epoch == latest or batch.leader_epoch < 0 for batch in batches):
            return None
        known = self.epochs.entries()
        for batch in batches:
            if batch.leader_epoch >= 0:
                self.epochs.assign(batch.leader_epoch, batch.base_offset)
        return known

    def _note_producers(self, data: Buffer, batches: list[BatchInfo]) -> None:
        """What was just written to the active segment, markers perhaps, told to those who keep the state of producers."""
        for batch in batches:
            if batch.producer_id >= 0:
                aborted = feed(self.producers, batch, lambda batch=batch: bytes(data[batch.position : batch.end]))  # type: ignore[misc]
                if aborted is not None:
                    self._note_aborted(aborted)

    def _note_aborted(self, aborted: AbortedTxn) -> None:
        segment = self.active
        if not segment.has_aborted:
            self._dir_dirty = True
            self._with_aborted.append(segment)
        segment.add_aborted(aborted)

    def _remember(self, offset: int, segment: Segment, position: int) -> None:
        places = self._places
        if len(places) >= _PLACES_MAX:
            del places[next(iter(places))]
        places[offset] = (segment, position)

    # --- roll

    def _due_to_roll(self, size: int, max_timestamp: int, last_offset: int, now_ms: int) -> bool:
        segment = self.active
        if segment.size == 0:
            return last_offset - segment.base_offset > INT32_MAX
        config = self._config
        if segment.size + size > config.segment_bytes or last_offset - segment.base_offset > INT32_MAX:
            return True
        base_ms = segment.first_timestamp
        if base_ms is None:
            base_ms = segment.age_base()
        waited_ms = max_timestamp - base_ms if base_ms >= 0 else now_ms - segment.created_ms
        if waited_ms > self._segment_ms - segment.jitter_ms:
            return True
        # Most appends add no index entry: whether there is room for one is asked only of those that may.
        may_be_indexed = segment.bytes_since_entry + size > segment.index_interval_bytes
        return may_be_indexed and not segment.has_room(config.index_bytes_max)

    def roll(self, now_ms: int) -> None:
        """Seal the active segment and begin a new one at the log end. Nothing to do while the active one is empty."""
        if self.active.size:
            self._roll(self.log_end_offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> None:
        former = self.active
        segment = self._new_segment(base_offset, now_ms)
        former.seal()
        self._sealed_unflushed.append(former)
        former.end_offset = base_offset
        self._segments.append(segment)
        self._bases.append(base_offset)
        self.active = segment
        self._dir_dirty = True
        if base_offset > self.snapshots.latest_offset:
            self.snapshots.write(base_offset, self.producers)

    def _new_segment(self, base_offset: int, now_ms: int) -> Segment:
        config = self._config
        return Segment.create(
            self._disk,
            self.dir,
            base_offset,
            index_interval_bytes=config.index_interval_bytes,
            jitter_ms=config.draw_jitter_ms(self._random),
            now_ms=now_ms,
            cache=self._cache,
        )

    # --- read

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool, here: bool = True) -> ReadInfo:
        """Whole batches from the one that holds `offset` up to `end_offset` (exclusive) or `max_bytes`, within one segment.

        With `min_one_batch` the first batch comes also if it is larger than `max_bytes`. A batch that reaches beyond
        `end_offset` is not visible yet. Not `here`: where a lost index has to be built again, that is IndexLost.
        """
        log_end_offset = self.log_end_offset
        if not self.log_start_offset <= offset <= log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic_partition} is outside of {self.log_start_offset} to {log_end_offset}",
            )
        if offset >= end_offset or offset == log_end_offset:
            return ReadInfo([], 0, offset)
        segment, start, first_end, first_last = self._locate(offset, here)
        if end_offset >= segment.end_offset:
            limit, limit_offset = segment.size, segment.end_offset
        else:
            place = self._places.get(end_offset)
            if place is None or place[0] is not segment:
                limit = segment.find(end_offset, here)
                self._remember(end_offset, segment, limit)
            else:
                limit = place[1]
            limit_offset = end_offset
        if limit - start > max_bytes:
            if first_end - start <= max_bytes:
                cut, cut_offset = segment.cut(start, start + max_bytes, min_one_batch, here)
            elif min_one_batch:
                cut, cut_offset = first_end, first_last + 1
            else:
                cut, cut_offset = start, offset
            if cut == start:
                return ReadInfo([], 0, offset, first_batch_too_large=True)
            if cut < limit:
                limit, limit_offset = cut, cut_offset
        if limit <= start:
            return ReadInfo([], 0, offset)
        if limit_offset not in self._places:
            self._remember(limit_offset, segment, limit)
        size = limit - start
        return ReadInfo([FileRange(segment.file, start, size)], size, limit_offset)

    def read_past_empty(self, info: ReadInfo, max_bytes: int, end_offset: int, min_one_batch: bool) -> ReadInfo:
        """What was read; where it is only batches that compaction has emptied, what follows them, if there is anything.

        Compaction leaves them to remember a producer, or that a segment has lost nothing at its end (`recovery`).
        """
        while info.size and info.size % RECORDS_AT == 0 and info.size <= _EMPTY_BATCHES_MAX * RECORDS_AT:
            read = info.ranges[0]
            try:
                batches, _ = scan_batches(read.file.read(read.position, read.size))
            except MalformedInput:
                break  # it is broken, which its reader will find
            if any(batch.record_count for batch in batches):
                break
            further = self.read(info.records_end_offset, max_bytes, end_offset, min_one_batch)
            if not further.size:
                break
            info = further
        return info

    def _locate(self, offset: int, here: bool) -> tuple[Segment, int, int, int]:
        """The batch of an offset below the log end, or the first behind it: its segment and position; and where it had to be
        looked for, its end and last offset (else -1)."""
        place = self._places.get(offset)
        if place is not None and place[1] < place[0].size:
            return place[0], place[1], -1, -1
        segment, slot = self.active, -1
        if offset < segment.base_offset:
            slot = bisect_right(self._bases, offset) - 1
            segment = self._segments[slot]
        while True:
            if offset > segment.base_offset:
                position, end, last = segment.find_batch(offset, here)
            elif segment.size:
                position, end, last = segment.first_batch()
            else:
                position, end, last = 0, -1, -1
            if position < segment.size or segment is self.active:
                return segment, position, end, last
            slot += 1  # the rest of the segment was compacted away
            segment = self._segments[slot]

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that overlap a range, in the order of their markers (T02)."""
        found: list[AbortedTxn] = []
        for segment in self._with_aborted:
            if segment.end_offset > start_offset and segment.txn_index.collect(start_offset, end_offset, found):
                break
        return found

    def _find_aborted(self) -> None:
        self._with_aborted = [segment for segment in self._segments if segment.has_aborted]

    # --- by time

    def offset_for_timestamp(
        self, timestamp_ms: int, start_offset: int = 0, here_bytes_max: int | None = None
    ) -> OffsetByTime | None:
        """The first record, from an offset on, whose timestamp is at least this one; None where there is none. `here_bytes_max`:
        how much may be done for it now, see `time_lookup`."""
        start_offset = max(start_offset, self.log_start_offset)
        return time_lookup.first_at_or_after(self._segments, start_offset, timestamp_ms, here_bytes_max)

    def offset_of_max_timestamp(self, here_bytes_max: int | None = None) -> OffsetByTime | None:
        """The first record that has the largest timestamp of the log; None where no record has one."""
        # Segments before the start are not looked at: recovery did not, either.
        first = max(bisect_right(self._bases, self.log_start_offset) - 1, 0)
        return time_lookup.first_of_largest(self._segments[first:], here_bytes_max)

    # --- epochs

    def start_epoch(self, epoch: int, start_offset: int) -> None:
        """This broker leads from here on."""
        self.epochs.assign(epoch, start_offset)

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        return self.epochs.end_offset_for(epoch, self.log_end_offset)

    def epoch_at(self, offset: int) -> int:
        return self.epochs.epoch_at(offset)

    # --- flush

    def flush_plan(self) -> FlushPlan | None:
        """All that was appended since the last flush. None if that is nothing.

        Index entries go to their files here (a small write), the epochs too: a recovery point beyond data vouches for both.
        """
        sealed, self._sealed_unflushed = self._sealed_unflushed, []  # the active one is read through after a crash anyway
        earlier = self._unfinished
        if self.recovery_point >= self.log_end_offset and not (sealed or self._dir_dirty or self._parent_dirty or earlier):
            return None
        first = max(bisect_right(self._bases, self.recovery_point) - 1, 0)
        segments = self._segments[first:] if self.recovery_point < self.log_end_offset else []
        for segment in segments:
            segment.write_indexes()
        self.epochs.write(self.log_end_offset)
        dirs = [self.dir] if self._dir_dirty else []
        if self._parent_dirty:
            dirs.append(self.dir.rpartition("/")[0])
        index_paths = [segment.path(suffix) for segment in sealed for suffix in (OFFSET_INDEX, TIME_INDEX)]
        index_paths += self.snapshots.take_unflushed()
        for segment in self._with_aborted:
            if segment.txn_index_dirty:
                index_paths.append(segment.path(TXN_INDEX))
                segment.txn_index_dirty = False
        if self._metadata_dirty:
            index_paths.append(f"{self.dir}/{PARTITION_METADATA}")
        self._dir_dirty = self._parent_dirty = self._metadata_dirty = False
        if earlier is not None:
            # Nobody said that it ran to its end. What it was to flush besides the log, this one flushes too.
            index_paths = list(dict.fromkeys(earlier.index_paths + index_paths))
            dirs = list(dict.fromkeys(earlier.dirs + dirs))
        plan = self._unfinished = FlushPlan(
            end_offset=self.log_end_offset,
            truncations=self._truncations,
            disk=self._disk,
            files=[segment.file for segment in segments],
            index_paths=index_paths,
            dirs=dirs,
        )
        return plan

    def closing_plan(self) -> FlushPlan:
        """The last flush of a clean stop. The indexes of the active segment are part of it, since no start will look for them in
        the log."""
        index_paths = self.active.finish_indexes()
        self.active.give_back()
        plan = self.flush_plan()
        if plan is None:
            return FlushPlan(self.log_end_offset, self._truncations, self._disk, [], index_paths, [])
        plan.index_paths += index_paths
        return plan

    def metadata_written(self) -> None:
        """The file with the topic's id is new, and perhaps not on the disk: it must be there before records are."""
        self._metadata_dirty = self._dir_dirty = True

    def flushed(self, plan: FlushPlan, now_ms: int | None = None) -> None:
        """The plan ran to its end. If the log was cut meanwhile, what the plan promised may be gone: nothing moves then."""
        if plan is self._unfinished:
            self._unfinished = None
        if now_ms is not None:
            self.last_flush_ms = now_ms
        if plan.truncations == self._truncations:
            self.recovery_point = max(self.recovery_point, plan.end_offset)

    def flush(self, now_ms: int | None = None) -> None:
        """Plan, run and note it, in this thread."""
        plan = self.flush_plan()
        if plan is not None:
            plan.run()
            self.flushed(plan, now_ms)

    # --- cutting at the start

    def apply_retention(self, now_ms: int) -> list[int]:
        """Let go of whole segments: below the log start, by size, by time. Returns their base offsets.

        Nothing at or above the high watermark goes. The active segment goes only after a roll has put a new one behind it.
        """
        config = self._config
        removed = self._delete_from_start(retention.below(self.log_start_offset), now_ms)
        if config.deletes and config.retention_bytes >= 0:
            removed += self._delete_from_start(retention.beyond_size(self.size_bytes, config.retention_bytes), now_ms)
        if config.deletes and config.retention_ms >= 0:
            removed += self._delete_from_start(retention.older_than(config.retention_ms, now_ms), now_ms)
        return removed

    def rest(self) -> None:
        """Asked now and then: if nothing was written since it was last asked, room reserved for more goes back to the volume."""
        if self._rested_at == self.log_end_offset:
            self.active.give_back()
        self._rested_at = self.log_end_offset

    def _delete_from_start(self, due: retention.Rule, now_ms: int) -> list[int]:
        """Delete segments from the first on while the rule says so."""
        count = 0
        for slot, segment in enumerate(self._segments):
            follower = self._bases[slot + 1] if slot + 1 < len(self._bases) else None
            upper = self.log_end_offset if follower is None else follower
            if self._high_watermark < upper or (follower is None and segment.size == 0) or not due(segment, follower):
                break
            count += 1
        if count == 0:
            return []
        if count == len(self._segments):
            self._roll(self.log_end_offset, now_ms)
        self._move_start(max(self.log_start_offset, self._bases[count]))
        bases = self._drop_segments(0, count)
        self._drop_snapshots(bases)
        return bases

    def _drop_segments(self, first: int, end: int) -> list[int]:
        """Take segments out of the row and mark their files. They stay readable for those who read them already."""
        gone = self._segments[first:end]
        bases = self._bases[first:end]
        del self._segments[first:end]
        del self._bases[first:end]
        self._places.clear()
        self._dir_dirty = True
        for segment in gone:
            self.size_bytes -= segment.size
            paths = segment.mark_deleted()
            for earlier in self._deleted:  # of the same name, before the log was cut back and grew again
                earlier.paths = [path for path in earlier.paths if path not in paths]
            self._deleted.append(_Deleted(paths, None, [segment]))
        self._find_aborted()
        return bases

    def _drop_snapshots(self, bases: Sequence[int]) -> None:
        """Those of segments that are gone. What they told of producers, later ones tell too."""
        paths = [path for base in bases if (path := self.snapshots.mark_deleted(base)) is not None]
        if paths:
            self._deleted.append(_Deleted(paths))

    def replace_segments(self, former: Sequence[Segment], cleaned: Segment) -> None:
        """Put one segment in the place of some that follow each other (compaction). Its files are flushed, named `.cleaned`.

        The names change in an order in which a crash, wherever it comes, leaves the old or the new (`recovery` finishes it): all
        of the new are `.swap` before the first of the old goes, and have their names only when the last of the old has gone.
        Who reads the old ones keeps them.
        """
        slot = self._bases.index(former[0].base_offset)
        end = slot + len(former)
        assert self._segments[slot:end] == list(former)
        assert end < len(self._segments), "the active segment is never replaced"
        self._replacements += 1
        # The name of the .log is what makes a segment: it is the last to become .swap, the first to be itself.
        cleaned.rename_files(CLEANED, SWAP, reversed(SEGMENT_SUFFIXES))
        cleaned.end_offset = former[-1].end_offset
        self._sealed_unflushed = [segment for segment in self._sealed_unflushed if segment not in former]
        self._drop_segments(slot, end)
        cleaned.rename_files(SWAP, "", SEGMENT_SUFFIXES)
        self._segments.insert(slot, cleaned)
        self._bases.insert(slot, cleaned.base_offset)
        self.size_bytes += cleaned.size
        cleaned.has_aborted = self._disk.exists(cleaned.path(TXN_INDEX))
        self._find_aborted()
        self._drop_snapshots([segment.base_offset for segment in former[1:]])

    def _move_start(self, offset: int) -> None:
        """The recovery point stays: were it moved along and written down without the start, a crash would bring records back
        that were never flushed, and believe them."""
        self.log_start_offset = offset
        self._high_watermark = max(self._high_watermark, offset)
        self.epochs.truncate_start(offset)

    def advance_log_start(self, offset: int) -> None:
        """Records below are gone for readers (DeleteRecords); whole segments below go from the disk.

        An offset at or below the present start changes nothing; one above the high watermark is OFFSET_OUT_OF_RANGE.
        """
        if offset > self._high_watermark or offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete up to offset {offset} of {self.topic_partition}: the high watermark is {self._high_watermark}",
            )
        if offset > self.log_start_offset:
            self._move_start(offset)
            self._delete_from_start(retention.below(offset), now_ms=0)  # never the active one: no roll, no time needed

    def take_deleted(self, now_ms: int) -> list[str]:
        """Paths of files whose time to be removed has come: `file.delete.delay.ms` after the first call that saw them."""
        due: list[str] = []
        waiting: list[_Deleted] = []
        for deleted in self._deleted:
            if deleted.due_ms is None:
                deleted.due_ms = now_ms + self._config.file_delete_delay_ms
            if deleted.due_ms <= now_ms:
                due += deleted.paths
            else:
                waiting.append(deleted)
        self._deleted = waiting
        return due

    # --- cutting at the end

    def truncate_to(self, offset: int, now_ms: int | None = None) -> bool:
        """Forget all from `offset` on, whole batches: the log ends there. False if it did not reach so far; CORRUPT_MESSAGE if
        the batch to be cut off cannot be found.

        The recovery point goes back too; the caller writes the checkpoints before it appends again, or a crash would trust
        bytes that were never flushed.
        """
        assert offset >= 0
        if offset >= self.log_end_offset:
            self.epochs.truncate_end(self.log_end_offset)
            return False
        if offset < self._bases[0]:
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        keep = max(bisect_right(self._bases, offset), 1)
        self._segments[keep - 1].find(offset)  # if it is broken there, nothing has been changed yet
        self._truncations += 1
        self._places.clear()
        while keep < len(self._segments):
            # From the last on, and durably before the cut: a crash in between must leave no gap.
            self._drop_segments(len(self._segments) - 1, len(self._segments))
            if keep == len(self._segments):
                self._disk.flush_dir(self.dir)
        segment = self._segments[-1]
        segment.activate()
        self.active = segment
        self.size_bytes -= segment.truncate(offset, now_ms)
        self.log_end_offset = offset
        self.epochs.truncate_end(offset)
        self._cut_marks(offset)
        self._find_aborted()
        if not self.producers.is_empty:  # from less, not more can come
            rebuild(self.producers, self.snapshots, self._segments, self.log_start_offset, offset)
            self.producers.replicated(self._high_watermark)
        return True

    def truncate_fully_and_start_at(self, offset: int, now_ms: int | None = None) -> None:
        """Forget everything; the next record has `offset`."""
        self._truncations += 1
        self._places.clear()
        self._drop_segments(0, len(self._segments))
        segment = self._new_segment(offset, now_ms if now_ms is not None else 0)
        self._segments.append(segment)
        self._bases.append(offset)
        self.active = segment
        self.size_bytes = 0
        self.log_end_offset = offset
        self.log_start_offset = offset
        self.epochs.clear()
        self.producers.clear()
        if self.snapshots.remove_behind(NO_OFFSET):
            self._dir_dirty = True
        self._cut_marks(offset)

    def _cut_marks(self, offset: int) -> None:
        self.log_start_offset = min(self.log_start_offset, offset)
        self.recovery_point = min(self.recovery_point, offset)
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(self.cleaned_offset, offset)
        self._high_watermark = max(min(self._high_watermark, offset), self.log_start_offset)
        if self.snapshots.remove_behind(offset):  # of producers whose records are gone
            self._dir_dirty = True

    # --- the end

    def write_metadata(self) -> None:
        """Bring the epoch file up to date (part of each round of checkpoints)."""
        self.epochs.write(self.log_end_offset)

    def stage_epochs(self) -> bool:
        """Of a clean stop, see `EpochCache.stage`; the closing plan then flushes the directory. False: the file is up to date."""
        staged = self.epochs.stage(self.log_end_offset)
        if staged:
            self._dir_dirty = True
        return staged

    def take_snapshot(self) -> None:
        """Write down what is known of producers, before the last flush of a clean stop. None: nobody's, and none was before."""
        if self.log_end_offset > self.snapshots.latest_offset and (len(self.producers) or self.snapshots.offsets):
            self.snapshots.write(self.log_end_offset, self.producers)
            self._dir_dirty = True

    def close(self) -> None:
        """Leave the files as a clean stop has them. The closing plan comes first, if anything is to vouch for them."""
        if self.closed:
            return
        self.take_snapshot()
        self.closed = True
        self.epochs.write(self.log_end_offset)
        self.active.finish_indexes()
        for segment in self._segments:
            segment.close()
        self._places.clear()
        self._remove_marked()

    def _remove_marked(self) -> None:
        for deleted in self._deleted:
            for path in deleted.paths:
                try:
                    self._disk.remove(path)
                except FileNotFoundError:
                    pass  # two segments of one name, one after the other
        self._deleted.clear()

    def rename_dir(self, path: str) -> None:
        """Give the directory another name; the next flush makes it durable. Who reads keeps what he has."""
        former = self.dir
        self._disk.rename(former, path)
        self.dir = path
        self.epochs.path = path + self.epochs.path.removeprefix(former)
        self.snapshots.dir = path
        for segment in self._segments:
            segment.dir = path
        for deleted in self._deleted:
            deleted.paths = [path + name.removeprefix(former) for name in deleted.paths]
            for segment in deleted.keeps:
                segment.dir = path
        self._parent_dirty = True

    def inherit(self, former: Log) -> None:
        """This log has the same records, and takes the place of the other: what that one knows beyond them."""
        self.config = former.config
        if self.log_end_offset < former.log_end_offset:  # offsets that were given and taken back by a truncation
            self.log_end_offset = self.active.end_offset = former.log_end_offset
        self.epochs.restore(former.epochs.entries())
        self.producers = former.producers
        self.high_watermark = former.high_watermark
        self.cleaned_offset = former.cleaned_offset
        self.last_flush_ms = former.last_flush_ms

    def use_cache(self, cache: SegmentCache) -> None:
        """Let another cache decide which sealed segments stay open: one thread loaded them, another will read them."""
        self._cache = cache
        for segment in self._segments:
            segment.use_cache(cache)

    def delete(self, suffix: str = DELETE_DIR) -> str:
        """Rename the directory so that it is no partition's any more. Returns its path, for `remove_tree` later."""
        self.closed = True
        parent = self.dir.rpartition("/")[0]
        path = f"{parent}/{retired_dir(self.topic_partition, self._random.bytes(16), suffix)}"
        self._disk.rename(self.dir, path)
        self._disk.flush_dir(parent)
        self._deleted.clear()
        self._places.clear()
        for segment in self._segments:
            segment.let_go_for_good()
        return path
