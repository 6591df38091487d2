"""Checks a closed segment: every byte belongs to an intact batch.

Reads through a descriptor of its own, a few batches at a time, so that any thread may take a step.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from ottla.ports import Disk
from ottla.records.batch import BatchInfo
from ottla.storage.salvage import intact_batches

STEP_BYTES: Final = 64 << 10
"""About a millisecond of small batches."""


@dataclass(frozen=True, slots=True)
class Damage:
    """Bytes that are no intact batch, and the offsets that are missing there."""

    position: int
    end_position: int
    first_offset: int
    end_offset: int


class SegmentCheck:
    def __init__(self, disk: Disk, path: str, base_offset: int, end_offset: int) -> None:
        """OSError if the file cannot be opened."""
        self.damages: list[Damage] = []
        self.done = False
        self.bytes = 0
        """Checked so far."""
        self._file = disk.open(path)
        self._size = self._file.size()
        self._end_offset = end_offset
        self._next_offset = base_offset
        self._window = b""
        self._window_at = 0
        self._batches: Iterator[BatchInfo] = intact_batches(self._read, self._size, 0, base_offset, end_offset)

    def step(self) -> None:
        """Check the next batches. OSError if they cannot be read."""
        end = self.bytes + STEP_BYTES
        while self.bytes < end:
            info = next(self._batches, None)
            if info is None:
                self._passed(self._size, self._end_offset)
                self.done = True
                return
            self._passed(info.position, info.base_offset)
            self.bytes = info.end
            self._next_offset = info.next_offset

    def close(self) -> None:
        self._file.close()

    def _passed(self, position: int, offset: int) -> None:
        """Everything up to a position has been seen."""
        if position > self.bytes:
            self.damages.append(Damage(self.bytes, position, self._next_offset, offset))
            self.bytes = position

    def _read(self, position: int, count: int) -> bytes:
        at = position - self._window_at
        if at < 0 or at + count > len(self._window):
            self._window = self._file.read(position, max(count, STEP_BYTES))
            self._window_at, at = position, 0
        return self._window[at : at + count]
