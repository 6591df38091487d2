"""Bugs of one log and its data directory: recovery, flushing, appending, reading, deleting, compaction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.records.record import read_records
from ottla.sim.bugs.registry import Patch, bug
from ottla.storage import checkpoint, compaction, data_dir, recovery, time_lookup
from ottla.storage.compaction import CleanedSegment
from ottla.storage.compaction_plan import LogToClean
from ottla.storage.cut import Cut
from ottla.storage.data_dir import DataDir
from ottla.storage.epoch_cache import EpochCache
from ottla.storage.flush import FlushPlan
from ottla.storage.log import Log
from ottla.storage.log_flushes import LogFlushes
from ottla.storage.offset_index import OffsetIndex
from ottla.storage.segment import Segment
from ottla.storage.segment_files import SegmentFiles
from ottla.types import TimestampAndOffset

# --- recovery


@bug("recovery does not check the CRC", world="log", seeds_max=60)
def recovery_skips_crc() -> list[Patch]:
    original = Segment.rebuild_indexes

    def rebuild_indexes(self: Segment, **options: Any) -> int:
        return original(self, **{**options, "check_crc": False})

    return [(Segment, "rebuild_indexes", rebuild_indexes)]


@bug("recovery finds a torn tail and does not truncate it", world="log", seeds_max=40)
def torn_tail_kept() -> list[Patch]:
    return [(Segment, "truncate_file", lambda self, position: None)]


@bug("segments behind a truncated one are kept", world="log", seeds_max=40)
def segments_behind_truncation_kept() -> list[Patch]:
    return [(Cut, "take_out", lambda self, segments: None)]


@bug("after a recovery the log ends one record early", world="log", seeds_max=20)
def log_end_off_by_one() -> list[Patch]:
    original = recovery.open_log

    def open_log(*arguments: Any) -> Log:
        opened = original(*arguments)
        if not arguments[5].clean and opened.log_end_offset > opened.log_start_offset:
            opened.local.log_end_offset -= 1
        return opened

    return [(data_dir, "open_log", open_log)]


@bug(
    "the clean shutdown marker survives the start",
    world="log",
    seeds_max=120,
)
def clean_marker_kept() -> list[Patch]:
    original = DataDir.load

    def load(self: DataDir, *arguments: Any) -> list[Log]:
        loaded = original(self, *arguments)
        if self.was_clean:
            checkpoint.write_clean_shutdown(self._disk, f"{self.path}/.kafka_cleanshutdown", -1)
        return loaded

    return [(DataDir, "load", load)]


@bug("a rebuilt index is off by one", world="log", seeds_max=60)
def rebuilt_index_off_by_one() -> list[Patch]:
    original = Segment.rebuild_indexes
    append = OffsetIndex.append
    rebuilding = False

    def rebuild_indexes(self: Segment, **options: Any) -> int:
        nonlocal rebuilding
        rebuilding = True
        try:
            return original(self, **options)
        finally:
            rebuilding = False

    def shifted(self: OffsetIndex, offset: int, position: int) -> None:
        append(self, offset - 1 if rebuilding else offset, position)

    return [(Segment, "rebuild_indexes", rebuild_indexes), (OffsetIndex, "append", shifted)]


@bug("the epoch cache is not truncated to the log end", world="log", seeds_max=120)
def epochs_not_truncated() -> list[Patch]:
    return [(EpochCache, "truncate_end", lambda self, end_offset: None)]


# --- flushing and checkpoints


@bug("the recovery point moves before the flush", world="log", seeds_max=20)
def recovery_point_early() -> list[Patch]:
    original = LogFlushes.plan

    def plan_flush(self: LogFlushes) -> FlushPlan | None:
        plan = original(self)
        if plan is not None:
            self.recovery_point = plan.end_offset
        return plan

    return [(LogFlushes, "plan", plan_flush)]


@bug("the directory of new segments is not flushed", world="log", seeds_max=20)
def directory_not_flushed() -> list[Patch]:
    original = LogFlushes.plan

    def plan_flush(self: LogFlushes) -> FlushPlan | None:
        plan = original(self)
        if plan is not None:
            plan.dirs.clear()
        return plan

    return [(LogFlushes, "plan", plan_flush)]


@bug("a checkpoint is written in place", world="log", seeds_max=60)
def checkpoint_in_place() -> list[Patch]:
    def replace_text(disk: Any, path: str, text: str, *_: Any, **__: Any) -> None:
        file = disk.open(path, create=True)
        file.truncate(0)
        file.write(0, [text.encode()])
        file.flush()
        file.close()
        disk.flush_dir(path.rpartition("/")[0])

    return [(checkpoint, "replace_text", replace_text)]


@bug("a checkpoint is renamed before it is flushed", world="log", seeds_max=60)
def checkpoint_not_flushed() -> list[Patch]:
    def replace_text(disk: Any, path: str, text: str, *_: Any, **__: Any) -> None:
        file = disk.open(path + ".tmp", create=True)
        file.truncate(0)
        file.write(0, [text.encode()])
        file.close()
        disk.rename(path + ".tmp", path)
        disk.flush_dir(path.rpartition("/")[0])

    return [(checkpoint, "replace_text", replace_text)]


@bug("the log start is forgotten at a clean stop", world="log", seeds_max=40)
def log_start_forgotten() -> list[Patch]:
    original = checkpoint.write_offsets

    def write_offsets(disk: Any, path: str, offsets: Any) -> None:
        original(disk, path, {} if path.endswith("log-start-offset-checkpoint") else offsets)

    return [(data_dir, "write_offsets", write_offsets)]


@bug("a failed flush counts as successful", world="log", seeds_max=60)
def failed_flush_swallowed() -> list[Patch]:
    original = FlushPlan.run

    def run(self: FlushPlan) -> None:
        try:
            original(self)
        except OSError:
            pass

    return [(FlushPlan, "run", run)]


# --- appending


@bug("a failed write to a full disk is ignored", world="log", seeds_max=120)
def full_disk_swallowed() -> list[Patch]:
    original = Log._write

    def write(self: Log, data: Any, batches: Any, *rest: Any) -> bool:
        try:
            return original(self, data, batches, *rest)
        except OSError:
            self.local.log_end_offset = batches[-1].last_offset + 1
            return False

    return [(Log, "_write", write)]


@bug("a rolled segment is named one offset too low", world="log", seeds_max=10)
def roll_off_by_one() -> list[Patch]:
    original = Log._roll

    def roll(self: Log, base_offset: int, now_ms: int) -> None:
        original(self, base_offset - 1, now_ms)

    return [(Log, "_roll", roll)]


@bug("index entries behind a truncation are kept", world="log", seeds_max=400)
def index_not_truncated() -> list[Patch]:
    return [(OffsetIndex, "truncate", lambda self, offset: None)]


# --- reading


@bug("a read goes beyond the high watermark", world="log", seeds_max=20)
def read_beyond_high_watermark() -> list[Patch]:
    original = Log.read

    def read(self: Log, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool) -> Any:
        return original(self, offset, max_bytes, self.log_end_offset, min_one_batch)

    return [(Log, "read", read)]


@bug("a lookup in the offset index lands one entry late", world="log", seeds_max=10)
def index_lookup_late() -> list[Patch]:
    def position_of(self: OffsetIndex, offset: int) -> int:
        late = [position for found, position in self.entries() if found >= offset]
        return late[0] if late else self.last_position()

    return [(OffsetIndex, "position_of", position_of)]


@bug("a lookup by time gives the last record of the batch, not the first", world="log", seeds_max=40)
def time_lookup_last() -> list[Patch]:
    def offset_of_timestamp(buffer: Any, info: Any, target_ms: int, **limits: Any) -> TimestampAndOffset | None:
        late = [record for record in read_records(buffer, info) if record.timestamp >= target_ms]
        return TimestampAndOffset(late[-1].timestamp, late[-1].offset) if late else None

    return [(time_lookup, "offset_of_timestamp", offset_of_timestamp)]


# --- deleting


@bug("retention takes one segment too many", world="log", seeds_max=20)
def retention_one_too_many() -> list[Patch]:
    original = Log.apply_retention

    def apply_retention(self: Log, now_ms: int) -> list[int]:
        removed = original(self, now_ms)
        if len(self.segments) > 1:
            self._move_start(max(self.log_start_offset, self.local.bases[1]))
            removed += self.local.remove_segments(0, 1)
        return removed

    return [(Log, "apply_retention", apply_retention)]


@bug("retention does not look at the high watermark", world="log", seeds_max=200)
def retention_beyond_high_watermark() -> list[Patch]:
    original = Log.apply_retention

    def apply_retention(self: Log, now_ms: int) -> list[int]:
        self._high_watermark = self.log_end_offset
        return original(self, now_ms)

    return [(Log, "apply_retention", apply_retention)]


@bug("records above the high watermark can be deleted", world="log", seeds_max=60)
def deletion_beyond_high_watermark() -> list[Patch]:
    original = Log.advance_log_start

    def advance_log_start(self: Log, offset: int) -> None:
        self._high_watermark = max(self._high_watermark, min(offset, self.log_end_offset))
        original(self, offset)

    return [(Log, "advance_log_start", advance_log_start)]


# --- compaction


@bug("tombstones do not wait for delete.retention.ms", world="broker", seeds_max=120)
def tombstones_at_once() -> list[Patch]:
    original = compaction.Compaction.__init__

    def init(self: compaction.Compaction, disk: Any, dirt: LogToClean, *rest: Any) -> None:
        original(self, disk, dirt, *rest)
        self._config = replace(self._config, delete_retention_ms=0)

    return [(compaction.Compaction, "__init__", init)]


@bug("the cleaner reads the keys of the active segment too", world="broker", seeds_max=120)
def active_segment_indexed() -> list[Patch]:
    original = compaction.Compaction.__init__

    def init(self: compaction.Compaction, disk: Any, dirt: LogToClean, *rest: Any) -> None:
        original(self, disk, dirt, *rest)
        self._all = list(self.log.segments)  # type: ignore[attr-defined]

    index = compaction.Compaction._index

    def indexed(self: compaction.Compaction, keys: Any, last_batches: Any) -> Any:
        cleanable, self._segments = self._segments, self._all  # type: ignore[attr-defined]
        yield from index(self, keys, last_batches)
        self._segments = cleanable

    return [(compaction.Compaction, "__init__", init), (compaction.Compaction, "_index", indexed)]


@bug("a cleaned segment takes the place of others before it is flushed", world="broker", seeds_max=300)
def cleaned_not_flushed() -> list[Patch]:
    def finish(self: CleanedSegment, aborted: Any = ()) -> None:
        built = self._built
        built.time_index.append(built.max_timestamp, built.offset_of_max)
        for suffix, data in ((".index", built.index.pending_bytes()), (".timeindex", built.time_index.pending_bytes())):
            file = self._disk.open(f"{self.segment.path(suffix)}.cleaned", create=True)
            file.truncate(0)
            file.write(0, [data])
            file.close()
        self._file.close()

    return [(CleanedSegment, "finish", finish)]


@bug("cleaned segments are swapped in without the name .swap", world="broker", seeds_max=300)
def swapped_without_swap() -> list[Patch]:
    original = SegmentFiles.rename

    def rename(self: SegmentFiles, source: str, target: str, suffixes: Any) -> None:
        if target == ".swap":
            return
        original(self, ".cleaned" if source == ".swap" else source, target, suffixes)

    return [(SegmentFiles, "rename", rename)]
