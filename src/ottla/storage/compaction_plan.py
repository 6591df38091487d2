"""Which log to compact next, up to which offset, and which segments to merge. The rules are Kafka's.

A log is clean up to `Log.cleaned_offset`, dirty behind it. Not cleaned are the active segment, segments beyond the last stable
offset, a segment with a record younger than `min.compaction.lag.ms` and all behind it, and segments that are not flushed: the
record that replaces an older one must be on the disk before the older one is removed.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from ottla.storage.log import Log
from ottla.storage.offset_index import INT32_MAX
from ottla.storage.segment import Segment


@dataclass(frozen=True, slots=True)
class LogToClean:
    """The part of a log that can be cleaned now."""

    log: Log
    first_dirty_offset: int
    end_offset: int
    """The base offset of the first segment that cannot be cleaned."""
    clean_bytes: int
    dirty_bytes: int
    overdue_ms: int
    """How much longer than `max.compaction.lag.ms` records wait for compaction."""

    @property
    def ratio(self) -> float:
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        if self.dirty_bytes == 0:
            return False
        return self.overdue_ms > 0 or self.ratio > self.log.config.min_cleanable_dirty_ratio


def find_log_to_clean(log: Log, last_stable_offset: int, now_ms: int) -> LogToClean:
    segments = log.segments
    first_dirty_offset = log.cleaned_offset
    if first_dirty_offset is None or not log.log_start_offset <= first_dirty_offset <= log.log_end_offset:
        # Never cleaned, or retention or a truncation passed the checkpoint: all of the log is dirty.
        first_dirty_offset = log.log_start_offset
    first_dirty = _slot_of(segments, first_dirty_offset)
    end = _first_uncleanable(log, segments, first_dirty, min(last_stable_offset, log.recovery_point), now_ms)
    return LogToClean(
        log,
        first_dirty_offset,
        segments[end].base_offset,
        sum(segment.size for segment in segments if segment.base_offset < first_dirty_offset),
        sum(segment.size for segment in segments[first_dirty:end]),
        _overdue_ms(log, segments[first_dirty:-1], now_ms),
    )


def dirtiest(found: Iterable[LogToClean]) -> LogToClean | None:
    """The log with the largest dirty ratio, of those that are due."""
    return max((dirt for dirt in found if dirt.is_due), key=lambda dirt: dirt.ratio, default=None)


def group_segments(
    segments: Sequence[tuple[Segment, int]], segment_bytes: int, index_bytes_max: int, end_offset: int
) -> list[list[Segment]]:
    """Group neighbouring segments that fit into one. Each segment comes with the size of its larger index."""
    groups: list[list[Segment]] = []
    size = index_size = 0
    for slot, (segment, index_bytes) in enumerate(segments):
        behind = segments[slot + 1][0].base_offset if slot + 1 < len(segments) else end_offset
        if (
            groups
            and size + segment.size <= segment_bytes
            and index_size + index_bytes <= index_bytes_max
            and (segment.size == 0 or behind - 1 - groups[-1][0].base_offset <= INT32_MAX)
        ):
            groups[-1].append(segment)
            size += segment.size
            index_size += index_bytes
        else:
            groups.append([segment])
            size, index_size = segment.size, index_bytes
    return groups


def _slot_of(segments: Sequence[Segment], offset: int) -> int:
    return max(bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1, 0)


def _first_uncleanable(log: Log, segments: Sequence[Segment], first_dirty: int, limit_offset: int, now_ms: int) -> int:
    """The index of the first segment that cannot be cleaned."""
    end = len(segments) - 1
    while end > first_dirty and segments[end].base_offset > limit_offset:
        end -= 1
    lag_ms = log.config.min_compaction_lag_ms
    if lag_ms > 0:
        for slot in range(first_dirty, end):
            if segments[slot].max_timestamp > now_ms - lag_ms:
                return slot
    return max(end, first_dirty)


def _overdue_ms(log: Log, dirty_sealed: Sequence[Segment], now_ms: int) -> int:
    clean_until_ms = now_ms - max(log.config.max_compaction_lag_ms, 0)
    if clean_until_ms <= 0:
        return 0
    firsts = [first_ms for segment in dirty_sealed if segment.size and (first_ms := segment.rolling_base_timestamp()) > 0]
    return max(0, clean_until_ms - min(firsts, default=clean_until_ms))
