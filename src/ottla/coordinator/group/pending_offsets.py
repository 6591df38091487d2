"""Offsets committed in transactions that are still open (T08, T09). Compiled.

1. A pending offset is not visible. A fetch that requires stable offsets gets UNSTABLE_OFFSET_COMMIT.
2. The marker of a transaction ends the pending state of all offsets of its producer.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ottla.coordinator.group.committed_offset import CommittedOffset

Place = tuple[str, str, int]
"""Group, topic, partition."""


class PendingOffsets:
    __slots__ = ("_by_producer", "_open")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[Place, CommittedOffset]] = {}
        self._open: dict[str, dict[int, None]] = {}
        """Group -> producers with an open transaction that committed offsets of it."""

    def put(self, producer_id: int, place: Place, committed: CommittedOffset) -> None:
        self._by_producer.setdefault(producer_id, {})[place] = committed
        self._open.setdefault(place[0], {})[producer_id] = None

    def remove(self, place: Place) -> None:
        """The offset was deleted. Its transaction stays open and may commit it again."""
        for producer_id in self._open.get(place[0], ()):
            self._by_producer[producer_id].pop(place, None)

    def has(self, place: Place) -> bool:
        open_producers = self._open.get(place[0])
        return open_producers is not None and any(place in self._by_producer[producer_id] for producer_id in open_producers)

    def has_open(self, group_id: str) -> bool:
        return group_id in self._open

    def of_group(self, group_id: str) -> Iterator[Place]:
        for producer_id in self._open.get(group_id, ()):
            for place in self._by_producer[producer_id]:
                if place[0] == group_id:
                    yield place

    def take(self, producer_id: int) -> dict[Place, CommittedOffset]:
        """Remove and return what a producer has pending: its transaction ended."""
        pending = self._by_producer.pop(producer_id, {})
        for group_id in [group_id for group_id, producers in self._open.items() if producer_id in producers]:
            producers = self._open[group_id]
            del producers[producer_id]
            if not producers:
                del self._open[group_id]
        return pending

    def facts(self) -> dict[int, dict[Place, CommittedOffset]]:
        """All pending offsets, for comparison in tests."""
        return {producer_id: dict(places) for producer_id, places in self._by_producer.items()}
