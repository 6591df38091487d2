"""Recovery: opens the log in a partition's directory, or creates it.

1. Interrupted compaction swaps are completed or rolled back.
2. After a clean shutdown the segments are trusted. Otherwise every segment from the recovery point on is scanned, and the log is
   truncated before the first invalid batch.
3. Missing or corrupt indexes are rebuilt; leader epochs and producer state are truncated or replayed to match the log.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from ottla.errors import KafkaError, MalformedInput
from ottla.ports import Disk, Random
from ottla.records.batch import BatchInfo
from ottla.storage.checkpoint import CorruptCheckpoint, read_partition_metadata
from ottla.storage.config import INT64_MAX, LogConfig
from ottla.storage.cut import Cut, remove_segments
from ottla.storage.epoch_cache import EpochCache
from ottla.storage.local_log import LocalLog
from ottla.storage.log import Log
from ottla.storage.log_producers import LogProducers
from ottla.storage.names import (
    CLEANED,
    DELETED,
    EPOCH_CHECKPOINT,
    LOG,
    OFFSET_INDEX,
    PARTITION_METADATA,
    SEGMENT_SUFFIXES,
    SNAPSHOT,
    SWAP,
    TIME_INDEX,
    TXN_INDEX,
    parse_offset_file,
)
from ottla.storage.producer_replay import feed, mend_txn_index, rebuild
from ottla.storage.producer_state import ProducerStates
from ottla.storage.scan import scan_file
from ottla.storage.segment import Segment
from ottla.storage.segment_cache import SegmentCache
from ottla.storage.snapshot import Snapshots
from ottla.storage.txn_index import AbortedTxn
from ottla.types import ZERO_UUID, TopicPartition

_TAIL_BYTES: Final = 1 << 12


@dataclass(frozen=True, slots=True)
class LogCheckpoints:
    """What the checkpoints of the data directory say about a log."""

    clean: bool
    recovery_point: int = 0
    log_start_offset: int = 0
    cleaned_offset: int | None = None
    has_checkpoints: bool = False
    """The log has a recovery point: if it had been compacted, it would have a `cleaned_offset` too."""


def open_log(
    disk: Disk,
    random: Random,
    dir: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    found: LogCheckpoints,
    cache: SegmentCache,
    now_ms: int,
    notices: list[str] | None = None,
) -> Log:
    """Open the log in a directory. OSError if the disk fails. Truncations are reported to the operator in `notices`."""
    _finish_swaps(disk, dir)
    damaged: list[Segment] = []
    """Segments with a missing or corrupt index."""
    segments = _find_segments(disk, dir, lambda base: Segment.existing(disk, dir, base, config, random, now_ms, cache), damaged)
    epochs = EpochCache.load(disk, f"{dir}/{EPOCH_CHECKPOINT}")
    producers = ProducerStates(topic_partition)
    snapshots = Snapshots(disk, dir)

    if found.clean and not _ends_whole(segments, damaged):
        found = replace(found, clean=False, recovery_point=0)
    if not found.clean:
        cleaned_offset = found.cleaned_offset
        if cleaned_offset is None and not found.has_checkpoints:
            # The log comes from elsewhere and may be compacted, as internal topics are.
            cleaned_offset = INT64_MAX if config.compacted or topic_partition.topic.startswith("__") else None
        states = _States(producers, snapshots, found.log_start_offset)
        notices = [] if notices is None else notices
        segments = _recover(segments, found.recovery_point, epochs, disk, cleaned_offset, states, damaged, notices)
        if segments and found.recovery_point >= segments[-1].end_offset:
            # The next segment may start at the recovery point, and then this one is not checked again: what this recovery, or one
            # that was killed, truncated must not come back.
            segments[-1].flush_files()
    elif snapshots.offsets or damaged or _lacks_snapshot(segments):  # otherwise there is no producer state
        rebuild(producers, snapshots, segments, found.log_start_offset, segments[-1].end_offset if segments else 0)

    if segments and segments[-1].end_offset < found.log_start_offset:
        # only segments before the log start offset are left: files were removed
        remove_segments(disk, segments)
        segments = []
        epochs.clear()
        producers.clear()
    if not segments:
        segments = [Segment.create(disk, dir, found.log_start_offset, config, random, now_ms, cache)]
    active = segments[-1]
    active.activate()

    log_start_offset = max(found.log_start_offset, segments[0].base_offset)
    _write_snapshot(producers, snapshots, segments, log_start_offset)
    for segment in segments:
        # If an index is missing, the .txnindex may be missing too, which does not show.
        if segment in damaged or not segment.indexes.is_txn_plausible():
            mend_txn_index(segment, ProducerStates(topic_partition), snapshots, segments, log_start_offset)
    epochs.truncate_end(active.end_offset)
    epochs.truncate_start(log_start_offset)
    recovery_point = active.end_offset if found.clean else found.recovery_point
    local = LocalLog(disk, random, dir, config, segments, recovery_point, cache)
    log_producers = LogProducers(producers, snapshots)
    topic_id = _topic_id(disk, dir)
    log = Log(topic_partition, topic_id, local, epochs, log_producers, log_start_offset, recovery_point, now_ms)
    log.cleaned_offset = found.cleaned_offset
    return log


def new_log(
    disk: Disk,
    random: Random,
    dir: str,
    topic_partition: TopicPartition,
    config: LogConfig,
    cache: SegmentCache,
    now_ms: int,
) -> Log:
    """Create a log in a directory that does not exist, with as few disk operations as possible: a topic may have thousands of
    partitions. Nothing is flushed: see `LogFlushes.plan`."""
    disk.make_dirs(dir)
    segment = Segment.create(disk, dir, 0, config, random, now_ms, cache, in_new_dir=True)
    local = LocalLog(disk, random, dir, config, [segment], 0, cache)
    epochs = EpochCache(disk, f"{dir}/{EPOCH_CHECKPOINT}")
    producers = LogProducers(ProducerStates(topic_partition), Snapshots(disk, dir, []))
    return Log(topic_partition, ZERO_UUID, local, epochs, producers, log_start_offset=0, recovery_point=0, now_ms=now_ms)


@dataclass(frozen=True, slots=True)
class _States:
    """The producer state while recovery goes from segment to segment."""

    producers: ProducerStates
    snapshots: Snapshots
    log_start_offset: int

    def at(self, segments: list[Segment], slot: int) -> None:
        """Load the state before the first segment to check. Later snapshots may be of lost records, and are removed."""
        base_offset = segments[slot].base_offset
        self.snapshots.remove_behind(base_offset)
        rebuild(self.producers, self.snapshots, segments[:slot], self.log_start_offset, base_offset)

    def begin(self, segment: Segment) -> None:
        """The state is complete up to this segment: write a snapshot."""
        if segment.base_offset > max(self.snapshots.latest_offset, self.log_start_offset):
            self.snapshots.write(segment.base_offset, self.producers)


def _write_snapshot(producers: ProducerStates, snapshots: Snapshots, segments: list[Segment], log_start_offset: int) -> None:
    """Remove snapshots that the log does not need, and write one of the current state for the next start."""
    end_offset = segments[-1].end_offset
    snapshots.remove_behind(end_offset)
    snapshots.remove_strays(log_start_offset, [segment.base_offset for segment in segments])
    if end_offset > snapshots.latest_offset and (len(producers) or snapshots.offsets or len(segments) > 1):
        snapshots.write(end_offset, producers)


def _finish_swaps(disk: Disk, dir: str) -> None:
    """Finish interrupted compaction: `.cleaned` files are incomplete and are removed, `.swap` files only need renaming.

    A `.swap` at or behind the first `.cleaned` belongs to an incomplete replacement and is removed too.
    """
    cleaned: list[tuple[int, str]] = []
    swaps: list[tuple[int, str]] = []
    for name in disk.list(dir):
        parsed = parse_offset_file(name)
        if parsed is None:
            continue
        if name.endswith(DELETED):
            disk.remove(f"{dir}/{name}")
        elif name.endswith(CLEANED):
            cleaned.append((parsed[0], name))
        elif name.endswith(SWAP):
            swaps.append((parsed[0], name))
    first_cleaned = min((offset for offset, _ in cleaned), default=INT64_MAX)
    for _, name in [swap for swap in swaps if swap[0] >= first_cleaned] + cleaned:
        disk.remove(f"{dir}/{name}")
    swaps = [swap for swap in swaps if swap[0] < first_cleaned]
    if not swaps:
        return
    # The replaced segments are within the offsets of their replacement.
    replacing = [(offset, name) for offset, name in swaps if name.endswith(LOG + SWAP)]
    if replacing:
        start = min(offset for offset, _ in replacing)
        end = max(_end_of_swap(disk, f"{dir}/{name}", offset) for offset, name in replacing)
        for name in disk.list(dir):
            parsed = parse_offset_file(name)
            if parsed is not None and start <= parsed[0] < end and parsed[1] in (*SEGMENT_SUFFIXES, SNAPSHOT):
                disk.remove(f"{dir}/{name}")
    for _, name in swaps:
        disk.rename(f"{dir}/{name}", f"{dir}/{name.removesuffix(SWAP)}")
    disk.flush_dir(dir)


def _end_of_swap(disk: Disk, path: str, base_offset: int) -> int:
    end_offset = base_offset

    def note(info: BatchInfo) -> None:
        nonlocal end_offset
        end_offset = info.next_offset

    file = disk.open(path)
    try:
        scan_file(file, file.size(), base_offset, INT64_MAX, False, note)
    finally:
        file.close()
    return end_offset


def _find_segments(disk: Disk, dir: str, existing: Callable[[int], Segment], damaged: list[Segment]) -> list[Segment]:
    """The segments, ascending, by their .log files. Indexes without a .log file are removed. The last end offset is not set."""
    bases: list[int] = []
    sidecars: list[tuple[int, str]] = []
    for name in disk.list(dir):
        parsed = parse_offset_file(name)
        if parsed is None:
            continue
        if parsed[1] == LOG:
            bases.append(parsed[0])
        elif parsed[1] in (OFFSET_INDEX, TIME_INDEX, TXN_INDEX):
            sidecars.append((parsed[0], name))
    known = set(bases)
    with_aborted: dict[int, int] = {}
    for offset, name in sidecars:
        if offset not in known:
            disk.remove(f"{dir}/{name}")
        elif name.endswith(TXN_INDEX):
            with_aborted[offset] = disk.size(f"{dir}/{name}")
    segments = [existing(base) for base in sorted(bases)]
    for segment in segments:
        size = with_aborted.get(segment.base_offset)
        segment.indexes.has_aborted = bool(size)
        if size == 0 or (size and not segment.size):  # an empty .txnindex, or one of an empty segment, is never written
            damaged.append(segment)
    for segment, follower in pairwise(segments):
        segment.end_offset = follower.base_offset
    return segments


def _mend_indexes(segments: list[Segment], damaged: list[Segment]) -> None:
    """Rebuild missing indexes."""
    for segment in segments:
        if not segment.indexes.are_plausible():
            segment.rebuild_indexes()
            damaged.append(segment)


def _lacks_snapshot(segments: list[Segment]) -> bool:
    """Whether a clean shutdown must have left a snapshot, but did not: every segment but the first has one, and the first too if
    one of its last batches has a producer id."""
    if len(segments) != 1 or not segments[0].size:
        return bool(segments[1:])
    (segment,) = segments
    start = segment.index.around_position(max(segment.size - _TAIL_BYTES, 0))[0]
    try:
        return any(info.producer_id >= 0 for info, _ in segment.batches(start))
    except KafkaError:
        return True


def _ends_whole(segments: list[Segment], damaged: list[Segment]) -> bool:
    """After a clean shutdown: find the log end offset and rebuild missing indexes. False: the shutdown was not clean."""
    _mend_indexes(segments, damaged)
    if segments:
        last = segments[-1]
        try:
            last.end_offset = last.find_end_offset()
        except MalformedInput:
            last.rebuild_indexes()
            try:
                last.end_offset = last.find_end_offset()
            except MalformedInput:
                return False
    return True


def _recover(
    segments: list[Segment],
    recovery_point: int,
    epochs: EpochCache,
    disk: Disk,
    cleaned_offset: int | None,
    states: _States,
    damaged: list[Segment],
    notices: list[str],
) -> list[Segment]:
    """Check every batch from the segment of the recovery point on. Returns the segments that are left.

    A crash may lose whole batches at the end of a segment and keep the next segment. The log is truncated at such a gap: what
    follows was not flushed either, and consumers must not skip records. Kafka's compaction leaves such gaps too (Ottla's keeps
    the last batch of a segment), before `cleaned_offset`. If that is unknown, a segment that lacks records inside may lack them
    at its end.
    """
    first = max((slot for slot, segment in enumerate(segments) if segment.base_offset <= recovery_point), default=0)
    _mend_indexes(segments[:first], damaged)
    if first:
        segments[first - 1].file.release()  # space reserved by a process that was killed
        segments[first - 1].verify_indexes()  # sealed at the recovery point, its indexes may not be flushed
    if segments:
        epochs.truncate_end(segments[first].base_offset)  # from here on the epochs are read from the batches
        states.at(segments, first)
    for slot in range(first, len(segments)):
        segment = segments[slot]
        follower = segments[slot + 1].base_offset if slot + 1 < len(segments) else INT64_MAX
        states.begin(segment)
        cut = Cut(disk, segment.files.dir)
        end_offset, truncated_bytes, dense = _recover_segment(segment, follower, epochs, states.producers, cut)
        compacted = not dense if cleaned_offset is None else follower <= cleaned_offset
        if truncated_bytes or slot + 1 == len(segments) or (end_offset < follower and not compacted):
            segment.end_offset = end_offset
            behind = segments[slot + 1 :]
            cut.take_out(behind)
            if truncated_bytes or behind:
                notices.append(_truncation_notice(segment, truncated_bytes, behind, cut))
            return segments[: slot + 1]
    return segments


def _truncation_notice(segment: Segment, truncated_bytes: int, behind: list[Segment], cut: Cut) -> str:
    at = f"at offset {segment.end_offset}"
    what = f"truncated {truncated_bytes} bytes from an invalid batch {at} on" if truncated_bytes else f"records are missing {at}"
    removed = f", removed {len(behind)} segments from offset {behind[0].base_offset} on" if behind else ""
    return f"Recovery of {segment.path(LOG)}: {what}{removed}{_kept_notice(cut)}"


def _kept_notice(cut: Cut) -> str:
    if not cut.batches:
        return ", which held no intact batch"
    held = f". {cut.batches} intact batches with {cut.records} records lay behind"
    if not cut.paths:
        return f"{held}, and are lost: the volume has no space to keep them"
    more = f" and {len(cut.paths) - 1} more files" if len(cut.paths) > 1 else ""
    return f"{held}, kept in {cut.paths[0]}{more}: `ottla log dump {cut.dir} --salvage FILE` saves them"


def _recover_segment(
    segment: Segment, offset_limit: int, epochs: EpochCache, producers: ProducerStates, cut: Cut
) -> tuple[int, int, bool]:
    """Scan a segment and truncate it before the first invalid batch; replay its producers and aborted transactions.

    Returns the end offset, the bytes truncated, and whether every offset has a record.
    """
    end_offset = segment.base_offset
    dense = True
    aborted: list[AbortedTxn] = []
    file = segment.file

    def note(info: BatchInfo) -> None:
        nonlocal end_offset, dense
        if info.base_offset != end_offset or info.record_count != info.last_offset_delta + 1:
            dense = False
        end_offset = info.next_offset
        if info.leader_epoch > epochs.latest:
            epochs.assign(info.leader_epoch, info.base_offset)
        if info.producer_id >= 0:
            entry = feed(producers, info, lambda: file.read(info.position, info.size))
            if entry is not None:
                aborted.append(entry)

    good = segment.rebuild_indexes(check_crc=True, offset_limit=offset_limit, on_batch=note)
    truncated_bytes = segment.size - good
    if truncated_bytes:
        _refuse_legacy(segment, good)
        cut.keep_tail(segment, good, end_offset, offset_limit)
        segment.truncate_file(good)
    segment.file.release()
    segment.indexes.replace_txn(aborted)
    return end_offset, truncated_bytes, dense


def _refuse_legacy(segment: Segment, position: int) -> None:
    """Refuse to open a log with message format v0 or v1, rather than truncate valid data."""
    head = segment.file.read(position, 17)
    if len(head) == 17 and head[16] in (0, 1):
        length = int.from_bytes(head[8:12], "big", signed=True)
        if 14 <= length <= segment.size - position - 12:
            message = segment.file.read(position + 12, length)
            if zlib.crc32(message[4:]) == int.from_bytes(message[:4], "big"):
                raise OSError(
                    f"{segment.path(LOG)} has messages of format v{head[16]}, which is not supported: "
                    f"move {segment.files.dir} away, or copy the topic with Apache Kafka"
                )


def _topic_id(disk: Disk, dir: str) -> bytes:
    """The topic id of partition.metadata; ZERO_UUID if it is missing or corrupt."""
    try:
        return read_partition_metadata(disk, f"{dir}/{PARTITION_METADATA}") or ZERO_UUID
    except CorruptCheckpoint:
        return ZERO_UUID
