"""Which dead letters of a partition were replayed. Pure.

All offsets before `next_offset` are done, and ranges behind it: a replay with a filter leaves letters between those it takes. The
committed offset is `next_offset`, its metadata holds the ranges, so that any later replay takes each letter at most once.
"""

from __future__ import annotations

import re

METADATA_MAX = 4096
"""The broker's default of offset.metadata.max.bytes."""
_TEXT = re.compile(r"ottla-dlq/1((?: \d+(?:-\d+)?)*)")


class Progress:
    def __init__(self, next_offset: int = 0, metadata: str = "") -> None:
        self.next_offset = next_offset
        self._ranges: list[tuple[int, int]] = []
        """[first, end), ascending, with a gap before each."""
        match = _TEXT.fullmatch(metadata)
        for word in match[1].split() if match else ():
            first, _, last = word.partition("-")
            self.add(next_offset + int(first), next_offset + int(last or first) + 1)

    def done(self, offset: int) -> bool:
        return offset < self.next_offset or any(first <= offset < end for first, end in self._ranges)

    def add(self, first: int, end: int) -> None:
        """Offsets [first, end) are done."""
        if end <= max(first, self.next_offset):
            return
        joined = [*((a, b) for a, b in self._ranges if b < first or a > end)]
        touching = [(a, b) for a, b in self._ranges if not (b < first or a > end)]
        joined.append((min([first, *(a for a, _ in touching)]), max([end, *(b for _, b in touching)])))
        self._ranges = sorted(joined)
        if self._ranges[0][0] <= self.next_offset:
            self.next_offset = self._ranges.pop(0)[1]

    def count_behind(self) -> int:
        """How many offsets behind `next_offset` are done."""
        return sum(end - first for first, end in self._ranges)

    def metadata(self) -> str:
        """The ranges, relative to the offset: numbers stay short."""
        words = [
            f"{first - self.next_offset}" + (f"-{end - 1 - self.next_offset}" if end > first + 1 else "")
            for first, end in self._ranges
        ]
        return " ".join(["ottla-dlq/1", *words])
