"""The flushes of one log: how far it is on disk (the recovery point), and what the next flush takes there.

A flush is a `FlushPlan` that any thread runs; this begins and completes it.

1. 0 <= recovery_point <= log end offset. Every record before it is on disk, with its index entries, leader epochs, snapshots and
   file names: recovery trusts them.
"""

from __future__ import annotations

from ottla.storage.epoch_cache import EpochCache
from ottla.storage.flush import FlushPlan
from ottla.storage.local_log import LocalLog
from ottla.storage.snapshot import Snapshots


class LogFlushes:
    def __init__(self, local: LocalLog, epochs: EpochCache, snapshots: Snapshots, recovery_point: int, now_ms: int) -> None:
        self._local = local
        self._epochs = epochs
        self._snapshots = snapshots
        self.recovery_point = min(recovery_point, local.log_end_offset)
        self.last_flush_ms = now_ms

    def plan(self) -> FlushPlan | None:
        """A plan to flush everything appended since the last flush; None if nothing was.

        Writes index entries and leader epochs to their files first: recovery trusts both below the recovery point.
        """
        local = self._local
        end_offset = local.log_end_offset
        if self.recovery_point >= end_offset and local.unflushed.is_empty:
            return None
        segments = local.segments_from(self.recovery_point) if self.recovery_point < end_offset else []
        for segment in segments:
            segment.indexes.write_pending()
        self._epochs.write(end_offset)
        paths = self._snapshots.take_unflushed() + local.take_unflushed_txn_indexes()
        return local.unflushed.plan(local.disk, local.dir, end_offset, local.truncations, segments, paths)

    def closing_plan(self) -> FlushPlan:
        """The last flush of a clean shutdown. It includes the indexes of the active segment: the next start trusts them."""
        local = self._local
        paths = local.active.finish_indexes()
        local.active.release_reserved()
        plan = self.plan()
        if plan is None:
            return FlushPlan(local.log_end_offset, local.truncations, local.disk, [], paths, [])
        plan.paths += paths
        return plan

    def completed(self, plan: FlushPlan, now_ms: int | None = None) -> None:
        """A plan has run to its end. After a truncation meanwhile, the recovery point does not advance."""
        self._local.unflushed.completed(plan)
        if now_ms is not None:
            self.last_flush_ms = now_ms
        if plan.truncations == self._local.truncations:
            self.recovery_point = max(self.recovery_point, plan.end_offset)

    def truncated_to(self, end_offset: int) -> None:
        self.recovery_point = min(self.recovery_point, end_offset)

    def metadata_written(self) -> None:
        """partition.metadata is new: the next flush includes it, so that it is durable before records are."""
        self._local.unflushed.metadata = self._local.unflushed.dir = True
