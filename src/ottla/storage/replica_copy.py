"""Copies a log into another data directory while it is written (AlterReplicaLogDirs, F6).

Decides what to copy next and when the copy is complete. The broker replaces the log on the event loop, where no append can come
in between (`DataDir.promote`). A crash may happen in any state:

    copying    the copy grows in `<topic>-<partition>.<uuid>-future`, and continues after a restart
    marked     the copy is flushed, and has a `replica-swap` file: under the partition's name it is the current log
    swapped    the copy has the partition's name, durably; the source is deleted now or at the next start
    done       `replica-swap` is removed, after the source is deleted and the checkpoints have the new log

1. `plan` runs on the loop and only reads the source. `perform` and `flush_and_mark` only touch the copy: a worker may run them.
2. What is flushed of the source is flushed of the copy before the swap.
3. If the source is truncated or compacted, the copy restarts: a mixture might have records that neither log has.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final

from ottla.ports import Disk, FileRange
from ottla.storage.checkpoint import write_swap_mark
from ottla.storage.log import Log
from ottla.storage.names import REPLICA_SWAP

CHUNK_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class CopyStep:
    log_start_offset: int
    """The log start offset of the source."""
    changes: tuple[int, int]
    """`Log.changes` of the source when the step was planned."""
    restart_at: int | None = None
    """Drop the content of the copy, and restart at this offset."""
    records: FileRange | None = None
    reaches_end: bool = True
    """At the moment nothing is left to copy after this step."""

    @property
    def size(self) -> int:
        return self.records.size if self.records is not None else 0


class SourceFailed(Exception):
    """The source cannot be read: its data directory failed, not the target."""

    def __init__(self, error: OSError) -> None:
        super().__init__(str(error))
        self.error = error


class ReplicaCopy:
    def __init__(self, disk: Disk, source: Log, copy: Log) -> None:
        self._disk = disk
        self.source = source
        self.copy = copy
        self._changes = source.changes
        self._perhaps_flushed = source.log_end_offset
        """Records found at startup may be flushed although the recovery point is lower."""
        self._agree()

    def _agree(self) -> None:
        """A copy found at startup may be longer than its source, if a crash truncated the source."""
        source, copy = self.source, self.copy
        end = copy.log_end_offset
        if copy.latest_epoch >= 0:
            known = source.end_offset_for_epoch(copy.latest_epoch)
            end = min(end, known.offset if known.leader_epoch == copy.latest_epoch else 0)
        end = min(end, source.log_end_offset)
        if end < copy.log_end_offset:
            copy.truncate_to(end)

    def plan(self, chunk_bytes: int = CHUNK_BYTES) -> CopyStep:
        """Plan the next step, on the loop."""
        source, copy = self.source, self.copy
        start = source.log_start_offset
        restart_at: int | None = None
        if source.changes != self._changes or copy.log_end_offset < start:
            restart_at = start
        offset = copy.log_end_offset if restart_at is None else restart_at
        try:
            read = source.read(offset, min(chunk_bytes, source.config.segment_bytes), source.log_end_offset, True)
        except OSError as error:
            raise SourceFailed(error) from error
        records = read.ranges[0] if read.ranges else None
        reaches_end = records is None or read.records_end_offset >= source.log_end_offset
        return CopyStep(start, source.changes, restart_at, records, reaches_end)

    def perform(self, step: CopyStep, now_ms: int) -> None:
        copy = self.copy
        if step.restart_at is not None:
            self._changes = step.changes
            copy.truncate_fully_and_start_at(step.restart_at, now_ms)
        if step.records is not None:
            try:
                data = step.records.file.read(step.records.position, step.records.size)
            except OSError as error:
                raise SourceFailed(error) from error
            if len(data) < step.records.size:
                return  # the source was truncated meanwhile: the next plan restarts
            base_offset = int.from_bytes(data[:8], "big")
            if base_offset < copy.log_end_offset:
                # The log start offset of the source is inside a batch, and batches are copied whole.
                copy.truncate_fully_and_start_at(base_offset, now_ms)
            if len(data) > copy.config.segment_bytes:
                copy.config = replace(copy.config, segment_bytes=len(data))  # written when segment.bytes was larger
            copy.append_as_follower(data, now_ms)
        copy.high_watermark = copy.log_end_offset
        if step.log_start_offset > copy.log_start_offset:
            copy.advance_log_start(min(step.log_start_offset, copy.log_end_offset))

    def flush_and_mark(self) -> None:
        """After a step that reached the end: flush the copy and write `replica-swap`."""
        self.copy.flush()
        write_swap_mark(self._disk, f"{self.copy.dir}/{REPLICA_SWAP}", self.copy.log_start_offset)

    @property
    def flushed_enough(self) -> bool:
        """Everything that is flushed of the source is flushed of the copy."""
        flushed = max(self.source.recovery_point, self._perhaps_flushed)
        return self.copy.recovery_point >= min(flushed, self.source.log_end_offset, self.copy.log_end_offset)

    def take_over(self) -> None:
        """When everything is copied, on the loop: take over the state that is not in the records."""
        self.copy.inherit(self.source)

    @property
    def lag(self) -> int:
        """The number of offsets left to copy."""
        return max(self.source.log_end_offset - self.copy.log_end_offset, 0)


def forget_swap(disk: Disk, log: Log) -> None:
    """Remove `replica-swap`: the source of the move is deleted."""
    try:
        disk.remove(f"{log.dir}/{REPLICA_SWAP}")
    except FileNotFoundError:
        pass  # the partition was deleted meanwhile
