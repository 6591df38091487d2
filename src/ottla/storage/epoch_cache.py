"""Where each leader epoch began in one log (KIP-101): the memory that tells diverging logs apart.

Invariants
1. Epochs and their start offsets both grow strictly from entry to entry.
2. No entry starts at or beyond the log end, except the one of the current leader before its first append.
3. The file names every epoch of the data below the recovery point. Later ones it may miss: recovery finds them in the batches.
"""

from __future__ import annotations

from bisect import bisect_right

from ottla.ports import Disk
from ottla.storage.checkpoint import CorruptCheckpoint, epochs_text, flush_file, read_epochs, write_epochs, write_temporary
from ottla.types import NO_LEADER_EPOCH, NO_OFFSET, OffsetAndEpoch

_STAGED = ".tmp"
UNDEFINED = OffsetAndEpoch(NO_OFFSET, NO_LEADER_EPOCH)


class EpochCache:
    __slots__ = ("_disk", "_epochs", "_starts", "_stored", "latest", "path")

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = NO_LEADER_EPOCH
        self._stored: list[tuple[int, int]] | None = []
        """What the file says; None: it cannot be believed."""

    @classmethod
    def load(cls, disk: Disk, path: str) -> EpochCache:
        """What the file says. A file that cannot be believed counts as empty: recovery and later appends fill it again."""
        cache = cls(disk, path)
        try:
            cache._stored = read_epochs(disk, path)
            for epoch, start_offset in cache._stored:
                if epoch < 0 or start_offset < 0:
                    raise CorruptCheckpoint(f"{path} has epoch {epoch} from offset {start_offset}")
                cache.assign(epoch, start_offset)
        except CorruptCheckpoint:
            cache.clear()
            cache._stored = None
        return cache

    def assign(self, epoch: int, start_offset: int) -> None:
        """An epoch begins here. Entries it contradicts (an epoch or an offset not below) are of a former history, and go."""
        assert epoch >= 0
        assert start_offset >= 0
        if self.latest == epoch and start_offset >= self._starts[-1]:
            return
        while self._epochs and (self._epochs[-1] >= epoch or self._starts[-1] >= start_offset):
            self._epochs.pop()
            self._starts.pop()
        self._epochs.append(epoch)
        self._starts.append(start_offset)
        self._changed()

    def end_offset_for(self, epoch: int, log_end_offset: int) -> OffsetAndEpoch:
        """The largest epoch not above `epoch`, and where it ended (KIP-279): how far a follower's history may agree.

        An epoch older than all we know is answered with itself and the start of our first: what it wrote is gone here.
        """
        if epoch == NO_LEADER_EPOCH:
            return UNDEFINED
        if epoch == self.latest:
            return OffsetAndEpoch(log_end_offset, epoch)
        higher = bisect_right(self._epochs, epoch)
        if higher == len(self._epochs):
            return UNDEFINED
        found = self._epochs[higher - 1] if higher else epoch
        return OffsetAndEpoch(self._starts[higher], found)

    def epoch_at(self, offset: int) -> int:
        slot = bisect_right(self._starts, offset) - 1
        return self._epochs[slot] if slot >= 0 else NO_LEADER_EPOCH

    def start_of(self, epoch: int, otherwise: int) -> int:
        """Where an epoch began, `otherwise` if it is not known."""
        slot = bisect_right(self._epochs, epoch) - 1
        return self._starts[slot] if slot >= 0 and self._epochs[slot] == epoch else otherwise

    def truncate_end(self, end_offset: int) -> None:
        """The log ends here now: epochs that began at or beyond it never were."""
        if self._starts and self._starts[-1] >= end_offset:
            while self._starts and self._starts[-1] >= end_offset:
                self._epochs.pop()
                self._starts.pop()
            self._changed()

    def truncate_start(self, start_offset: int) -> None:
        """The log starts here now: the epoch in force moves up to it, those before are forgotten."""
        slot = bisect_right(self._starts, start_offset) - 1
        if slot < 0 or (slot == 0 and self._starts[0] == start_offset):
            return
        del self._epochs[:slot]
        del self._starts[:slot]
        self._starts[0] = start_offset
        self._changed()

    def clear(self) -> None:
        self._epochs.clear()
        self._starts.clear()
        self._changed()

    def entries(self) -> list[tuple[int, int]]:
        return list(zip(self._epochs, self._starts, strict=True))

    def restore(self, entries: list[tuple[int, int]]) -> None:
        """Back to what `entries` gave, after an append that failed."""
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
        self._changed()

    def write(self, log_end_offset: int) -> None:
        """Bring the file up to date. An epoch without data yet is left out, as it would be dropped at the next start anyway:
        so to begin an epoch on a thousand partitions costs no write."""
        entries = self._with_data(log_end_offset)
        if entries != self._stored:
            write_epochs(self._disk, self.path, entries)
            self._stored = entries

    def stage(self, log_end_offset: int) -> bool:
        """The steps of `write` one by one, for who writes many: this, `flush_staged`, `put_staged`, and then the directory is
        to be flushed. False: the file is up to date."""
        entries = self._with_data(log_end_offset)
        if entries == self._stored:
            return False
        write_temporary(self._disk, self.path + _STAGED, epochs_text(entries), flush=False)
        self._stored = entries
        return True

    def flush_staged(self) -> None:
        flush_file(self._disk, self.path + _STAGED)

    def put_staged(self) -> None:
        self._disk.rename(self.path + _STAGED, self.path)

    def _with_data(self, log_end_offset: int) -> list[tuple[int, int]]:
        return [entry for entry in self.entries() if entry[1] < log_end_offset]

    def _changed(self) -> None:
        self.latest = self._epochs[-1] if self._epochs else NO_LEADER_EPOCH
