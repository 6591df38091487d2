"""Which offset of a mirrored partition is which in the source.

A run is a row of records that follow each other in both partitions: source offset, target offset, length. A new run begins with
each transaction of the mirror and after each gap of the source (compaction, transaction markers).

1. A translated offset is never past the first record that the group has not read: a consumer that moves to the target may read
   records again, and misses none.
2. Within a kept run the translation is exact. Older runs are thinned: the further back, the wider they are spaced.
3. At most `RUNS_MAX` runs are kept, so that they fit into the metadata of a committed offset (4,096 bytes).
"""

from __future__ import annotations

from dataclasses import dataclass, field

RUNS_MAX = 60
_EXACT = 12
"""The newest runs, which are never thinned."""
_PER_DISTANCE = 2
"""Runs kept for each power of two of distance from the newest."""


@dataclass(slots=True)
class Run:
    source: int
    target: int
    count: int

    @property
    def source_end(self) -> int:
        return self.source + self.count


@dataclass(slots=True)
class OffsetSyncs:
    runs: list[Run] = field(default_factory=list)

    def add(self, source: int, target: int, count: int) -> None:
        """Add the newest run. Joins the run before it if both follow on in both partitions."""
        last = self.runs[-1] if self.runs else None
        if last is not None and (last.source_end, last.target + last.count) == (source, target):
            last.count += count
            return
        self.runs.append(Run(source, target, count))
        if len(self.runs) > RUNS_MAX:
            self._thin()

    def translate(self, offset: int) -> int | None:
        """The offset in the target from which a group at `offset` goes on; None if it is older than all kept runs."""
        for run in reversed(self.runs):
            if run.source <= offset:
                return run.target + min(offset - run.source, run.count)
        return None

    def _thin(self) -> None:
        newest = self.runs[-1].source
        kept: list[Run] = []
        at_distance: dict[int, int] = {}
        for run in self.runs[:-_EXACT]:
            distance = (newest - run.source).bit_length()
            at_distance[distance] = at_distance.get(distance, 0) + 1
            if at_distance[distance] <= _PER_DISTANCE:
                kept.append(run)
        # Source offsets span at most 63 bits, but a thinned list may still be full of distances: drop every second then.
        if len(kept) + _EXACT > RUNS_MAX - _EXACT:
            kept = kept[::2]
        self.runs = kept + self.runs[-_EXACT:]

    def encoded(self) -> list[list[int]]:
        """Runs as numbers, each relative to the run before."""
        numbers, source, target = [], 0, 0
        for run in self.runs:
            numbers.append([run.source - source, run.target - target, run.count])
            source, target = run.source, run.target
        return numbers

    @classmethod
    def decoded(cls, numbers: list[list[int]]) -> OffsetSyncs:
        syncs, source, target = cls(), 0, 0
        for each in numbers:
            source, target = source + each[0], target + each[1]
            syncs.runs.append(Run(source, target, each[2]))
        return syncs
