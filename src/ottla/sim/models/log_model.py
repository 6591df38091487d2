"""What a log must hold, and the comparison of its files with it."""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Final

from ottla.sim.kernel.disk import SimDisk
from ottla.sim.models.log_files import FoundBatch, entries_of, scan, segments, stored_batches
from ottla.sim.violation import require

_INDEX_ENTRY: Final = struct.Struct(">ii")
_TIME_ENTRY: Final = struct.Struct(">qi")


@dataclass(frozen=True, slots=True)
class Written:
    """A batch that was given to a log."""

    base_offset: int
    last_offset: int
    leader_epoch: int
    timestamps: tuple[int, ...]
    data: bytes


@dataclass(slots=True)
class LogModel:
    """What one log must hold. Batches below the log start stay known: a crash may bring them back, unaltered."""

    name: str
    batches: list[Written] = field(default_factory=list)
    log_start: int = 0
    log_end: int = 0

    def add(self, batch: Written) -> None:
        require(
            batch.base_offset == self.log_end,
            "offsets",
            f"{self.name}: appended at {batch.base_offset}, the log end was {self.log_end}",
        )
        self.batches.append(batch)
        self.log_end = batch.last_offset + 1

    def cut(self, log_end: int) -> list[Written]:
        """Truncate to an offset. Returns the removed batches."""
        keep = len(self.batches)
        while keep and self.batches[keep - 1].last_offset >= log_end:
            keep -= 1
        gone = self.batches[keep:]
        del self.batches[keep:]
        self.log_end = log_end
        return gone

    def slot(self, offset: int) -> int:
        """Index of the batch that holds an offset."""
        return bisect_right(self.batches, offset, key=lambda batch: batch.base_offset) - 1

    def visible(self) -> list[Written]:
        """Batches with an offset at or above the log start."""
        first = max(0, self.slot(self.log_start))
        return [batch for batch in self.batches[first:] if batch.last_offset >= self.log_start]

    def first_at_or_after(self, timestamp: int) -> tuple[int, int] | None:
        """(timestamp, offset) of the first record at or after a time: what a lookup must answer (W06)."""
        for batch in self.visible():
            for delta, found in enumerate(batch.timestamps):
                if found >= timestamp and batch.base_offset + delta >= self.log_start:
                    return found, batch.base_offset + delta
        return None

    def max_timestamp(self) -> tuple[int, int] | None:
        best: tuple[int, int] | None = None
        for batch in self.visible():
            for delta, found in enumerate(batch.timestamps):
                if best is None or found > best[0]:
                    best = found, batch.base_offset + delta
        return best


def check_contents(disk: SimDisk, directory: str, model: LogModel) -> None:
    """The files hold exactly what was written, from log start to log end (L01, L02)."""
    found = [batch for batch in stored_batches(disk, directory, model.log_start) if batch.last_offset >= model.log_start]
    check_order(found, directory, model.log_start, model.log_end)
    for batch in found:
        check_batch(model, batch.base_offset, batch.data)


def check_batch(model: LogModel, base_offset: int, data: bytes) -> None:
    slot = model.slot(base_offset)
    known = model.batches[slot] if slot >= 0 else None
    require(
        known is not None and known.base_offset == base_offset,
        "content",
        f"{model.name}: a batch at {base_offset} that nobody wrote there",
    )
    assert known is not None
    require(known.data == data, "content", f"{model.name}: the batch at {base_offset} is not what was written")


def check_order(batches: list[FoundBatch], directory: str, log_start: int, log_end: int) -> None:
    """Every offset from log start to log end is there once."""
    expected: int | None = None
    for batch in batches:
        require(
            batch.base_offset >= batch.segment, "offsets", f"{directory}: batch {batch.base_offset} in segment {batch.segment}"
        )
        if expected is None:
            require(
                batch.base_offset <= log_start,
                "offsets",
                f"{directory}: the log starts at {log_start} and its first batch at {batch.base_offset}",
            )
        else:
            require(batch.base_offset == expected, "offsets", f"{directory}: offset {batch.base_offset} follows {expected - 1}")
        expected = batch.last_offset + 1
    if batches:
        require(
            expected == log_end, "offsets", f"{directory}: the log end offset is {log_end}, its last batch ends at {expected}"
        )
    else:
        require(log_start == log_end, "offsets", f"{directory}: no batch, but the log is {log_start}..{log_end}")


def check_indexes(disk: SimDisk, directory: str, damaged: Container[str] = (), log_start: int = 0) -> None:
    """Every index entry agrees with a scan of its segment (L03)."""
    names = entries_of(disk, directory)
    bases = segments(names)
    for slot, base in enumerate(bases):
        if slot + 1 < len(bases) and bases[slot + 1] <= log_start:
            continue
        batches, _ = scan(disk.contents(f"{directory}/{base:020d}.log"), base)
        stem = f"{directory}/{base:020d}"
        if f"{base:020d}.index" in names and f"{stem}.index" not in damaged:
            _check_offset_index(disk.contents(f"{directory}/{base:020d}.index"), batches, directory, base)
        if f"{base:020d}.timeindex" in names and f"{stem}.timeindex" not in damaged:
            _check_time_index(disk.contents(f"{directory}/{base:020d}.timeindex"), batches, directory, base)


def _check_offset_index(data: bytes, batches: list[FoundBatch], directory: str, base: int) -> None:
    at = {batch.position: batch for batch in batches}
    previous = (-1, -1)
    require(len(data) % 8 == 0, "index-is-scan", f"{directory} {base}.index has {len(data)} bytes")
    for relative, position in _INDEX_ENTRY.iter_unpack(_without_zeros(data, 8)):
        batch = at.get(position)
        require(batch is not None, "index-is-scan", f"{directory} {base}.index points to {position}, where no batch begins")
        assert batch is not None
        require(
            batch.last_offset == base + relative,
            "index-is-scan",
            f"{directory} {base}.index says offset {base + relative} at {position}, it is {batch.last_offset}",
        )
        require(previous < (relative, position), "index-is-scan", f"{directory} {base}.index is not ascending")
        previous = (relative, position)


def _without_zeros(data: bytes, entry_bytes: int) -> bytes:
    """Zeros at the end of an index are allocated and unused: Kafka leaves them, and so does a crash."""
    end = len(data)
    while end and not any(data[end - entry_bytes : end]):
        end -= entry_bytes
    return data[:end]


def _check_time_index(data: bytes, batches: list[FoundBatch], directory: str, base: int) -> None:
    require(len(data) % 12 == 0, "index-is-scan", f"{directory} {base}.timeindex has {len(data)} bytes")
    last_offsets = [batch.last_offset for batch in batches]
    maxima: list[int] = []
    for batch in batches:
        maxima.append(max(batch.max_timestamp, maxima[-1] if maxima else -1))
    for timestamp, relative in _TIME_ENTRY.iter_unpack(_without_zeros(data, 12)):
        slot = bisect_right(last_offsets, base + relative) - 1
        require(
            slot >= 0 and last_offsets[slot] == base + relative and maxima[slot] == timestamp,
            "index-is-scan",
            f"{directory} {base}.timeindex says {timestamp} by offset {base + relative}, the scan says "
            f"{maxima[slot] if slot >= 0 else 'nothing'}",
        )
