"""One partition's log: records with offsets, and what the broker knows about them.

Owns the log start offset and the high watermark, and keeps the leader epochs (`EpochCache`), the producer state (`LogProducers`)
and the recovery point (`LogFlushes`) consistent with the segments (`LocalLog`). Never validates records (`records.validate`),
never decides how far a reader may see (the caller names an end offset), never waits.

1. log_start_offset <= high_watermark <= log_end_offset.
2. The offset of an acknowledged record is never assigned again, except after a truncation below it.
3. A failed append leaves the log as it was.
4. `producers` is the state of exactly the records in the log.
"""

from __future__ import annotations

from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.records.batch import BatchInfo, batch_crc_ok, scan_batches, stamp
from ottla.records.own import own_marker
from ottla.records.validate import Checked
from ottla.storage import retention, time_lookup
from ottla.storage.config import INT64_MAX, LogConfig
from ottla.storage.epoch_cache import EpochCache
from ottla.storage.flush import FlushPlan
from ottla.storage.local_log import LocalLog
from ottla.storage.log_flushes import LogFlushes
from ottla.storage.log_producers import LogProducers
from ottla.storage.names import DELETE_DIR, retired_dir
from ottla.storage.producer_replay import feed_marker
from ottla.storage.results import AppendInfo, OffsetByTime, ReadInfo, UnexpectedOffset
from ottla.storage.segment import Segment
from ottla.storage.txn_index import AbortedTxn
from ottla.types import NO_TIMESTAMP, Buffer, OffsetAndEpoch, TopicPartition

__all__ = ["AppendInfo", "FlushPlan", "Log", "OffsetByTime", "ReadInfo", "UnexpectedOffset"]


class Log:
    def __init__(
        self,
        topic_partition: TopicPartition,
        topic_id: bytes,
        local: LocalLog,
        epochs: EpochCache,
        producers: LogProducers,
        log_start_offset: int,
        recovery_point: int,
        now_ms: int,
    ) -> None:
        self.local = local
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.flush_messages = local.config.flush_messages
        self.epochs = epochs
        self._log_producers = producers
        self.producers = producers.states
        self.flushes = LogFlushes(local, epochs, producers.snapshots, recovery_point, now_ms)
        self.log_start_offset = log_start_offset
        self._high_watermark = log_start_offset
        self.cleaned_offset: int | None = None
        """The first dirty offset: compaction has cleaned everything before it. None: the log was never compacted."""
        self.closed = False

    # --- properties of the segments

    @property
    def config(self) -> LogConfig:
        return self.local.config

    @config.setter
    def config(self, config: LogConfig) -> None:
        self.local.config = config
        self.flush_messages = config.flush_messages

    @property
    def dir(self) -> str:
        return self.local.dir

    @property
    def log_end_offset(self) -> int:
        return self.local.log_end_offset

    @property
    def active(self) -> Segment:
        return self.local.active

    @property
    def segments(self) -> list[Segment]:
        return list(self.local.segments)

    @property
    def first_base_offset(self) -> int:
        return self.local.segments[0].base_offset

    @property
    def size_bytes(self) -> int:
        return self.local.size_bytes

    @property
    def truncations(self) -> int:
        """Changes with every truncation of the end of the log."""
        return self.local.truncations

    @property
    def changes(self) -> tuple[int, int]:
        """Changes with every truncation and every compaction: reads before and after may not fit together."""
        return self.local.truncations, self.local.replacements

    # --- watermarks

    @property
    def high_watermark(self) -> int:
        return self._high_watermark

    @high_watermark.setter
    def high_watermark(self, offset: int) -> None:
        self._high_watermark = min(max(offset, self.log_start_offset), self.local.log_end_offset)
        if self.producers.first_unstable_offset != INT64_MAX:
            self.producers.replicated(self._high_watermark)

    @property
    def last_stable_offset(self) -> int:
        """The offset before which every transaction has ended, with its marker below the high watermark."""
        unstable = self.producers.first_unstable_offset
        if unstable >= self._high_watermark:
            return self._high_watermark
        return max(unstable, self.log_start_offset)

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
        """As leader: assign offsets to validated batches and write them.

        A batch with a producer id must continue that producer's sequence. A duplicate is not written again: its offsets are
        returned. `verified` and `bumps_epochs`: see `ProducerStates.check`.
        """
        buffer = checked.buffer
        batches = checked.batches
        first_offset = offset = self.local.log_end_offset
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
        # Checked before the batches are stamped: refused batches stay unchanged.
        if len(buffer) > self.local.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"{len(buffer)} bytes of records exceed segment.bytes={self.local.segment_bytes} of {self.topic_partition}",
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
        """As leader: append the control batch that ends a producer's transaction. INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED if a later epoch has written before (T12)."""
        self.producers.check_marker(producer_id, producer_epoch, coordinator_epoch, transaction_version)
        offset = self.local.log_end_offset
        marker = own_marker(commit, coordinator_epoch, producer_id, producer_epoch, now_ms)
        batch = marker.buffer
        stamp(batch, marker.batches[0], offset, leader_epoch)
        rolled = self._write(batch, marker.batches, now_ms, now_ms, leader_epoch)
        aborted = feed_marker(self.producers, marker.batches[0], commit, coordinator_epoch)
        if aborted is not None:
            self.local.add_aborted(aborted)
        return AppendInfo(offset, offset, NO_TIMESTAMP, self.log_start_offset, len(batch), rolled)

    def append_as_follower(self, records: Buffer, now_ms: int) -> AppendInfo:
        """Append batches with the leader's offsets and epochs. An incomplete batch at the end is ignored.

        UnexpectedOffset if they do not continue the log, CORRUPT_MESSAGE if a batch is corrupt; nothing is appended then.
        """
        try:
            batches, end = scan_batches(records)
        except MalformedInput as error:
            raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
        end_offset = self.local.log_end_offset
        if not batches:
            return AppendInfo(end_offset, end_offset - 1, NO_TIMESTAMP, self.log_start_offset, 0)
        first_offset, next_offset = batches[0].base_offset, end_offset
        max_timestamp = NO_TIMESTAMP
        for batch in batches:
            if batch.base_offset < next_offset:
                raise UnexpectedOffset(
                    f"the leader sent offset {batch.base_offset} of {self.topic_partition}, whose log end offset is {end_offset}",
                    first_offset,
                    batches[-1].last_offset,
                )
            if not batch_crc_ok(records, batch):
                raise KafkaError(
                    ErrorCode.CORRUPT_MESSAGE,
                    f"wrong CRC in the batch at offset {batch.base_offset} of {self.topic_partition}",
                )
            next_offset = batch.next_offset
            max_timestamp = max(max_timestamp, batch.max_timestamp)
        if end < len(records):
            records = memoryview(records)[:end]
        rolled = self._write(records, batches, max_timestamp, now_ms, None)
        for aborted in self._log_producers.replicated(records, batches):
            self.local.add_aborted(aborted)
        return AppendInfo(first_offset, next_offset - 1, NO_TIMESTAMP, self.log_start_offset, end, rolled)

    def _write(self, data: Buffer, batches: list[BatchInfo], max_timestamp: int, now_ms: int, leader_epoch: int | None) -> bool:
        """Write all batches to one segment, however large they are. True: a new segment was rolled for them."""
        local = self.local
        rolled = local.due_to_roll(len(data), max_timestamp, batches[-1].last_offset, now_ms)
        if rolled:
            self._roll(batches[0].base_offset, now_ms)
        known_epochs = self._note_epochs(batches, leader_epoch)
        try:
            local.append(data, batches, max_timestamp)
        except OSError:
            if known_epochs is not None:
                self.epochs.restore(known_epochs)
            raise
        return rolled

    def _note_epochs(self, batches: list[BatchInfo], leader_epoch: int | None) -> list[tuple[int, int]] | None:
        """Add new leader epochs to the cache. Returns its entries before that, None if there was nothing new."""
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

    def roll(self, now_ms: int) -> None:
        """Seal the active segment and start a new one at the log end, unless the active one is empty."""
        if self.local.active.size:
            self._roll(self.local.log_end_offset, now_ms)

    def _roll(self, base_offset: int, now_ms: int) -> None:
        self.local.roll(base_offset, now_ms)
        self._log_producers.rolled(base_offset)

    # --- read

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool, rebuild_inline: bool = True) -> ReadInfo:
        """Whole batches from the one that holds `offset` up to `end_offset` (exclusive) or `max_bytes`, within one segment.

        With `min_one_batch` the first batch is returned even if it is larger than `max_bytes`. A batch that reaches beyond
        `end_offset` is not visible yet. Without `rebuild_inline`, a missing index raises IndexLost instead of being rebuilt.
        """
        local = self.local
        if not self.log_start_offset <= offset <= local.log_end_offset:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic_partition} is not within {self.log_start_offset} and {local.log_end_offset}",
            )
        return local.read(offset, max_bytes, end_offset, min_one_batch, rebuild_inline)

    def read_past_empty(self, info: ReadInfo, max_bytes: int, end_offset: int, min_one_batch: bool) -> ReadInfo:
        """The result of a read; if it has only batches that compaction emptied, what follows them, if anything does.

        Compaction keeps empty batches for the state of a producer, and at the end of a segment (`recovery`).
        """
        while self.local.is_only_empty_batches(info):
            further = self.read(info.records_end_offset, max_bytes, end_offset, min_one_batch)
            if not further.size:
                break
            info = further
        return info

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that overlap a range of offsets, in the order of their markers (T02)."""
        return self.local.aborted(start_offset, end_offset)

    def offset_for_timestamp(
        self, timestamp_ms: int, start_offset: int = 0, inline_bytes_max: int | None = None
    ) -> OffsetByTime | None:
        """The first record from `start_offset` on with at least this timestamp; None if there is none. `inline_bytes_max` limits
        the work, see `time_lookup`."""
        start_offset = max(start_offset, self.log_start_offset)
        return time_lookup.first_at_or_after(self.local.segments, start_offset, timestamp_ms, inline_bytes_max)

    def offset_of_max_timestamp(self, inline_bytes_max: int | None = None) -> OffsetByTime | None:
        """The first record with the largest timestamp of the log; None if no record has a timestamp."""
        # Segments before the log start offset are skipped: recovery did not check them.
        return time_lookup.first_of_largest(self.local.segments_from(self.log_start_offset), inline_bytes_max)

    # --- leader epochs

    @property
    def latest_epoch(self) -> int:
        return self.epochs.latest

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        return self.epochs.end_offset_for(epoch, self.local.log_end_offset)

    # --- flush

    @property
    def recovery_point(self) -> int:
        """Every record before it is on disk."""
        return self.flushes.recovery_point

    @property
    def unflushed_messages(self) -> int:
        return self.local.log_end_offset - max(self.flushes.recovery_point, self.log_start_offset)

    def due_to_flush(self, now_ms: int) -> bool:
        """Whether `flush.messages` or `flush.ms` is reached."""
        return self.unflushed_messages > 0 and (
            self.unflushed_messages >= self.flush_messages or now_ms - self.flushes.last_flush_ms >= self.config.flush_ms
        )

    def flush(self, now_ms: int | None = None) -> None:
        """Flush in this thread."""
        plan = self.flushes.plan()
        if plan is not None:
            plan.run()
            self.flushes.completed(plan, now_ms)

    # --- deletion at the start

    def apply_retention(self, now_ms: int) -> list[int]:
        """Delete whole segments: below the log start offset, by size, by age. Returns their base offsets.

        Nothing at or above the high watermark is deleted. The active segment is rolled before it is deleted.
        """
        config = self.config
        removed = self._delete_from_start(retention.below(self.log_start_offset), now_ms)
        if config.deletes and config.retention_bytes >= 0:
            removed += self._delete_from_start(retention.beyond_size(self.size_bytes, config.retention_bytes), now_ms)
        if config.deletes and config.retention_ms >= 0:
            removed += self._delete_from_start(retention.older_than(config.retention_ms, now_ms), now_ms)
        return removed

    def _delete_from_start(self, due: retention.Rule, now_ms: int) -> list[int]:
        """Delete segments from the first on while the rule holds."""
        segments = self.local.segments
        count = 0
        for slot, segment in enumerate(segments):
            next_base = segments[slot + 1].base_offset if slot + 1 < len(segments) else None
            upper = self.log_end_offset if next_base is None else next_base
            if self._high_watermark < upper or (next_base is None and segment.size == 0) or not due(segment, next_base):
                break
            count += 1
        if count == 0:
            return []
        if count == len(segments):
            self._roll(self.log_end_offset, now_ms)
        self._move_start(max(self.log_start_offset, segments[count].base_offset))
        removed = self.local.remove_segments(0, count)
        self._segments_removed(removed)
        return removed

    def _segments_removed(self, bases: list[int]) -> None:
        paths = self._log_producers.segments_removed(bases)
        if paths:
            self.local.deleted.add(paths)

    def replace_segments(self, replaced: tuple[Segment, ...], cleaned: Segment) -> None:
        """Replace consecutive segments with a cleaned one, see `LocalLog.replace_segments`."""
        self.local.replace_segments(replaced, cleaned)
        self._segments_removed([segment.base_offset for segment in replaced[1:]])

    def _move_start(self, offset: int) -> None:
        """The recovery point stays. Written to its checkpoint without the new start, a higher one would vouch for records that
        were never flushed and come back after a crash."""
        self.log_start_offset = offset
        self._high_watermark = max(self._high_watermark, offset)
        self.epochs.truncate_start(offset)

    def advance_log_start(self, offset: int) -> None:
        """Delete the records below an offset (DeleteRecords), and the segments that are entirely below it.

        No effect at or below the log start offset; OFFSET_OUT_OF_RANGE above the high watermark.
        """
        if offset > self._high_watermark or offset < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"cannot delete up to offset {offset} of {self.topic_partition}: the high watermark is {self._high_watermark}",
            )
        if offset > self.log_start_offset:
            self._move_start(offset)
            self._delete_from_start(retention.below(offset), now_ms=0)  # never the active segment, so nothing is rolled

    def take_deleted(self, now_ms: int) -> list[str]:
        """The paths of deleted files to remove now: `file.delete.delay.ms` after the first call that saw them."""
        return self.local.deleted.take_due(now_ms, self.config.file_delete_delay_ms)

    # --- truncation at the end

    def truncate_to(self, offset: int, now_ms: int | None = None) -> bool:
        """Drop all batches from the one that holds `offset` on, so that the log ends there. False if it ends before already.
        CORRUPT_MESSAGE if that batch cannot be found.

        The recovery point moves back. The caller writes the checkpoints before the next append: after a crash, the old
        recovery point would vouch for new records that were never flushed.
        """
        assert offset >= 0
        if offset >= self.log_end_offset:
            self.epochs.truncate_end(self.log_end_offset)
            return False
        if offset < self.first_base_offset:
            self.truncate_fully_and_start_at(offset, now_ms)
            return True
        self.local.truncate_to(offset, now_ms)
        self.epochs.truncate_end(offset)
        self._lower_offsets(offset)
        if not self.producers.is_empty:
            self._log_producers.rebuild(self.local.segments, self.log_start_offset, offset)
            self.producers.replicated(self._high_watermark)
        return True

    def truncate_fully_and_start_at(self, offset: int, now_ms: int | None = None) -> None:
        """Drop all records; the next one has `offset`."""
        self.local.truncate_fully_and_start_at(offset, now_ms if now_ms is not None else 0)
        self.log_start_offset = offset
        self.epochs.clear()
        if self._log_producers.clear():
            self.local.unflushed.dir = True
        self._lower_offsets(offset)

    def _lower_offsets(self, end_offset: int) -> None:
        self.log_start_offset = min(self.log_start_offset, end_offset)
        self.flushes.truncated_to(end_offset)
        if self.cleaned_offset is not None:
            self.cleaned_offset = min(self.cleaned_offset, end_offset)
        self._high_watermark = max(min(self._high_watermark, end_offset), self.log_start_offset)
        if self._log_producers.drop_snapshots_behind(end_offset):
            self.local.unflushed.dir = True

    # --- closing, moving, deleting

    def stage_epochs(self) -> bool:
        """For a clean shutdown, see `EpochCache.stage`. The closing plan flushes the directory. False: the file is up to date."""
        staged = self.epochs.stage(self.log_end_offset)
        if staged:
            self.local.unflushed.dir = True
        return staged

    def take_snapshot(self) -> None:
        """Write the producer state before the last flush of a clean shutdown, unless there never was any."""
        if self._log_producers.take_snapshot(self.log_end_offset):
            self.local.unflushed.dir = True

    def close(self) -> None:
        """Complete and close the files. For a clean shutdown the closing plan runs before."""
        if self.closed:
            return
        self.take_snapshot()
        self.closed = True
        self.epochs.write(self.log_end_offset)
        self.local.close()

    def rename_dir(self, path: str) -> None:
        """Rename the directory. The next flush makes the name durable."""
        previous = self.dir
        self.local.rename_dir(path)
        self.epochs.path = path + self.epochs.path.removeprefix(previous)
        self._log_producers.snapshots.dir = path

    def inherit(self, source: Log) -> None:
        """Take over from a log with the same records (AlterReplicaLogDirs) everything that is not in the records."""
        self.config = source.config
        if self.log_end_offset < source.log_end_offset:  # it was truncated inside a batch
            self.local.log_end_offset = self.active.end_offset = source.log_end_offset
        self.epochs.restore(source.epochs.entries())
        self.producers = self._log_producers.states = source.producers
        self.high_watermark = source.high_watermark
        self.cleaned_offset = source.cleaned_offset
        self.flushes.last_flush_ms = source.flushes.last_flush_ms

    def delete(self, suffix: str = DELETE_DIR) -> str:
        """Rename the directory so that it belongs to no partition. Returns its new path, for `remove_tree` later."""
        self.closed = True
        parent = self.dir.rpartition("/")[0]
        path = f"{parent}/{retired_dir(self.topic_partition, self.local.random.bytes(16), suffix)}"
        self.local.delete(path)
        return path
