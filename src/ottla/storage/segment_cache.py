"""Which sealed segments keep their descriptor and indexes open: the most recently read, up to two limits."""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.storage.segment import Segment


class SegmentCache:
    def __init__(self, segments_max: int = 512, index_entries_max: int = 4 << 20) -> None:
        self._segments: OrderedDict[Segment, int] = OrderedDict()
        self._segments_max = segments_max
        self._entries_max = index_entries_max
        self._entries = 0
        self._latest: Segment | None = None

    def __len__(self) -> int:
        return len(self._segments)

    def touch(self, segment: Segment) -> None:
        """A sealed segment was read. Called several times for each read."""
        if segment is self._latest:
            return
        if segment in self._segments:
            self._segments.move_to_end(segment)
            self._latest = segment
        else:
            self.loaded(segment)

    def loaded(self, segment: Segment) -> None:
        """A sealed segment opened its file or loaded an index. Evicts others beyond the limits."""
        self._latest = segment
        held = segment.indexes.entries_held
        self._entries += held - self._segments.get(segment, 0)
        self._segments[segment] = held
        self._segments.move_to_end(segment)
        while len(self._segments) > 1 and (len(self._segments) > self._segments_max or self._entries > self._entries_max):
            oldest, entries = self._segments.popitem(last=False)
            self._entries -= entries
            oldest.evict()

    def forget(self, segment: Segment) -> None:
        if segment is self._latest:
            self._latest = None
        self._entries -= self._segments.pop(segment, 0)
