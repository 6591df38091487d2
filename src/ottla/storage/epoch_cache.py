"""The leader epoch cache of one log (KIP-101): where each leader epoch starts. Diverging logs are detected with it.

1. Epochs and start offsets both increase strictly.
2. No entry starts at or behind the log end offset, except that of the current leader before its first append.
3. The file has every epoch of records below the recovery point. Recovery finds later ones in the batches.
"""

from __future__ import annotations

from bisect import bisect_right

from ottla.ports import Disk
from ottla.storage.checkpoint import CorruptCheckpoint, epochs_text, flush_file, read_epochs, write_epochs, write_temporary
from ottla.types import NO_LEADER_EPOCH, NO_OFFSET, OffsetAndEpoch

_STAGED = ".tmp"
UNDEFINED = OffsetAndEpoch(NO_OFFSET, NO_LEADER_EPOCH)


class EpochCache:
    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self.path = path
        self._epochs: list[int] = []
        self._starts: list[int] = []
        self.latest = NO_LEADER_EPOCH
        self._stored: list[tuple[int, int]] | None = []
        """The entries in the file; None: the file is corrupt."""

    @classmethod
    def load(cls, disk: Disk, path: str) -> EpochCache:
        """Read the file. A corrupt file counts as empty: recovery and appends fill it again."""
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
        """An epoch starts at an offset. Entries with an equal or higher epoch or offset are removed."""
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
        """The largest epoch that is not above `epoch`, and its end offset (KIP-279): up to there a follower's log may agree.

        For an epoch older than all entries: that epoch and the start of the first entry.
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
        """The start offset of an epoch, `otherwise` if it is unknown."""
        slot = bisect_right(self._epochs, epoch) - 1
        return self._starts[slot] if slot >= 0 and self._epochs[slot] == epoch else otherwise

    def truncate_end(self, end_offset: int) -> None:
        """The log was truncated at its end: remove the epochs that start at or behind it."""
        if self._starts and self._starts[-1] >= end_offset:
            while self._starts and self._starts[-1] >= end_offset:
                self._epochs.pop()
                self._starts.pop()
            self._changed()

    def truncate_start(self, start_offset: int) -> None:
        """The log start offset advanced: the epoch at that offset starts there, earlier ones are removed."""
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
        """Replace all entries, for example after a failed append."""
        self._epochs = [epoch for epoch, _ in entries]
        self._starts = [start for _, start in entries]
        self._changed()

    def write(self, log_end_offset: int) -> None:
        """Write the file if it is out of date. An epoch without records is left out, as the next start would remove it: so a new
        epoch on a thousand partitions costs no write."""
        entries = self._with_data(log_end_offset)
        if entries != self._stored:
            write_epochs(self._disk, self.path, entries)
            self._stored = entries

    def stage(self, log_end_offset: int) -> bool:
        """The steps of `write`, to write many files together: `stage`, `flush_staged`, `put_staged`, then flush the directory.
        False: the file is up to date."""
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
