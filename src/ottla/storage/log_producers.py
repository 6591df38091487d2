"""The producer state of the records in one log: in memory (`ProducerStates`), and as snapshots on disk (`Snapshots`).

Keeps both in step with what happens to the segments.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.records.batch import BatchInfo
from ottla.storage.producer_replay import feed, rebuild
from ottla.storage.producer_state import ProducerStates
from ottla.storage.segment import Segment
from ottla.storage.snapshot import Snapshots
from ottla.storage.txn_index import AbortedTxn
from ottla.types import NO_OFFSET, Buffer


class LogProducers:
    def __init__(self, states: ProducerStates, snapshots: Snapshots) -> None:
        self.states = states
        self.snapshots = snapshots

    def replicated(self, data: Buffer, batches: list[BatchInfo]) -> list[AbortedTxn]:
        """A follower has written batches, possibly markers. Returns the transactions that they abort."""
        found: list[AbortedTxn] = []
        for batch in batches:
            if batch.producer_id >= 0:
                aborted = feed(self.states, batch, lambda batch=batch: bytes(data[batch.position : batch.end]))  # type: ignore[misc]
                if aborted is not None:
                    found.append(aborted)
        return found

    def rolled(self, base_offset: int) -> None:
        """A segment begins here: its snapshot has the state of all records before it."""
        if base_offset > self.snapshots.latest_offset:
            self.snapshots.write(base_offset, self.states)

    def take_snapshot(self, end_offset: int) -> bool:
        """Write the state before a clean shutdown. False: the last snapshot has it, or there never was any."""
        snapshots = self.snapshots
        if end_offset <= snapshots.latest_offset or not (len(self.states) or snapshots.offsets):
            return False
        snapshots.write(end_offset, self.states)
        return True

    def segments_removed(self, bases: Sequence[int]) -> list[str]:
        """Rename the snapshots of removed segments. Later snapshots include their content. Returns the new paths."""
        return [path for base in bases if (path := self.snapshots.mark_deleted(base)) is not None]

    def rebuild(self, segments: Sequence[Segment], log_start_offset: int, end_offset: int) -> None:
        """Take the state back to an earlier log end. The snapshots behind it are gone (`drop_snapshots_behind`)."""
        rebuild(self.states, self.snapshots, segments, log_start_offset, end_offset)

    def drop_snapshots_behind(self, offset: int) -> bool:
        """Remove snapshots behind an offset. True: there were some."""
        return self.snapshots.remove_behind(offset)

    def clear(self) -> bool:
        """All records are gone. True: there were snapshots."""
        self.states.clear()
        return self.snapshots.remove_behind(NO_OFFSET)
