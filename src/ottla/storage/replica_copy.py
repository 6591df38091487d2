"""Copying one log into another directory, while it is being written (F6).

Owns: what has to be copied next, and when the copy is whole. Never decides when it takes the log's place: the shell does that, on
the loop, where no append can come in between (`DataDir.promote`).

The steps of a move, of which a crash may fall into any:

    filling     the copy grows in `<topic>-<partition>.<uuid>-future`; after a restart it goes on where it was
    settled     it is flushed, and `replica-swap` in it says that under the partition's own name it is the whole one
    swapped     it has that name, durably; the former log is renamed to be deleted, or is at the next start
    forgotten   `replica-swap` goes, once the former is gone and the checkpoints know of the new one

Invariants
1. `plan` runs on the loop and only reads the source; `perform` and `settle` touch the copy alone: a worker may run them.
2. What was flushed of the source is flushed of the copy before it takes over.
3. If the source is cut at its end or compacted, the copy begins anew: a mixture of both might have records that neither has.
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
    """Of the source."""
    changes: tuple[int, int]
    """`Log.changes` of the source at the time of the plan."""
    restart_at: int | None = None
    """Forget what is in the copy, and begin at this offset."""
    records: FileRange | None = None
    reaches_end: bool = True
    """Behind it there is nothing left to copy, at the moment."""

    @property
    def size(self) -> int:
        return self.records.size if self.records is not None else 0


class SourceFailed(Exception):
    """The log that is copied cannot be read: its directory is lost, not the one copied to."""

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
        """Recovery points lag behind: what a log had when it was opened is on the disk, whatever they say."""
        self._agree()

    def _agree(self) -> None:
        """A copy found at the start may know more than its source, if a crash took the source's end."""
        source, copy = self.source, self.copy
        end = copy.log_end_offset
        if copy.latest_epoch >= 0:
            known = source.end_offset_for_epoch(copy.latest_epoch)
            end = min(end, known.offset if known.leader_epoch == copy.latest_epoch else 0)
        end = min(end, source.log_end_offset)
        if end < copy.log_end_offset:
            copy.truncate_to(end)

    def plan(self, chunk_bytes: int = CHUNK_BYTES) -> CopyStep:
        """On the loop: what comes next."""
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
                return  # the source was cut meanwhile: the next plan begins anew
            base_offset = int.from_bytes(data[:8], "big")
            if base_offset < copy.log_end_offset:
                # The source starts in the middle of a batch. Only then: batches are copied whole.
                copy.truncate_fully_and_start_at(base_offset, now_ms)
            if len(data) > copy.config.segment_bytes:
                copy.config = replace(copy.config, segment_bytes=len(data))  # written when the limit was higher
            copy.append_as_follower(data, now_ms)
        copy.high_watermark = copy.log_end_offset
        if step.log_start_offset > copy.log_start_offset:
            copy.advance_log_start(min(step.log_start_offset, copy.log_end_offset))

    def flush_and_mark(self) -> None:
        """After a step that reached the end: flush all, and mark the copy as the one that counts once it has its name."""
        self.copy.flush()
        write_swap_mark(self._disk, f"{self.copy.dir}/{REPLICA_SWAP}", self.copy.log_start_offset)

    @property
    def flushed_enough(self) -> bool:
        """All that is flushed of the source is flushed of the copy."""
        flushed = max(self.source.recovery_point, self._perhaps_flushed)
        return self.copy.recovery_point >= min(flushed, self.source.log_end_offset, self.copy.log_end_offset)

    def take_over(self) -> None:
        """On the loop, everything copied: the copy takes what the source knows beyond its records."""
        self.copy.inherit(self.source)

    @property
    def lag(self) -> int:
        """In offsets."""
        return max(self.source.log_end_offset - self.copy.log_end_offset, 0)


def forget_swap(disk: Disk, log: Log) -> None:
    """The former copy is gone for good: nothing is left to be told apart."""
    try:
        disk.remove(f"{log.dir}/{REPLICA_SWAP}")
    except FileNotFoundError:
        pass  # the partition was deleted meanwhile
