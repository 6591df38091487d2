"""How far a query has read: the offsets that Spark keeps in its checkpoint, and the arithmetic on them.

Owns: their JSON, `{"orders": {"0": 17, "1": 4}, "#orders": "<topic id>"}`: partitions by topic as Spark's Kafka source has them,
and beside them the id of each topic, so that one that was deleted and made again is noticed (`#` cannot begin a topic's name).
Also how a limit is shared out among partitions, and how ranges are split or put together into tasks. Pure: no client, no Spark.

1. The same offsets have the same JSON: Spark compares texts to find out whether there is anything new.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.types import TopicPartition

_ID = "#"


@dataclass(frozen=True, slots=True)
class Offsets:
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Where the cluster has ids for topics."""

    def document(self) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for topic, partition in sorted(self.positions):
            found.setdefault(topic, {})[str(partition)] = self.positions[TopicPartition(topic, partition)]
        for topic in sorted(self.topic_ids):
            found[_ID + topic] = self.topic_ids[topic]
        return found

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Offsets:
        positions: dict[TopicPartition, int] = {}
        topic_ids: dict[str, str] = {}
        for name, value in document.items():
            if name.startswith(_ID):
                topic_ids[name[1:]] = str(value)
            else:
                positions.update({TopicPartition(name, int(partition)): int(offset) for partition, offset in value.items()})
        return cls(positions, topic_ids)


def topic_id_text(topic_id: bytes) -> str | None:
    """As Kafka's tools print it; None for no id."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=") if any(topic_id) else None


class Range(NamedTuple):
    where: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def available(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """How many offsets there are to read; partitions that are new begin at 0."""
    return {where: max(end - start.get(where, 0), 0) for where, end in latest.items()}


def limited(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], count_max: int
) -> dict[TopicPartition, int]:
    """Ends such that about `count_max` offsets are read: each partition has the share of what it has to read, at least one."""
    sizes = available(start, latest)
    total = sum(sizes.values())
    if total <= count_max:
        return dict(latest)
    ends: dict[TopicPartition, int] = {}
    for where, end in latest.items():
        size = sizes[where]
        if size == 0:
            # New and empty, or behind its start, which whoever plans the reading judges.
            ends[where] = end
        else:
            ends[where] = start.get(where, 0) + min(size, max(count_max * size // total, 1))
    return ends


def split(ranges: Iterable[Range], pieces_min: int | None, records_max: int | None) -> list[Range]:
    """The ranges, the large ones in pieces, so that there are about `pieces_min` and none is above `records_max`."""
    whole = [entry for entry in ranges if entry.size > 0]
    total = sum(entry.size for entry in whole)
    found: list[Range] = []
    for entry in whole:
        pieces = 1
        if records_max is not None:
            pieces = -(-entry.size // records_max)
        if pieces_min is not None and len(whole) < pieces_min:
            pieces = max(pieces, round(entry.size / total * pieces_min), 1)
        pieces = min(pieces, entry.size)
        for number in range(pieces):
            begin = entry.start + entry.size * number // pieces
            found.append(Range(entry.where, begin, entry.start + entry.size * (number + 1) // pieces))
    return found


def together(ranges: Iterable[Range], records_max: int) -> list[list[Range]]:
    """The ranges in groups of at most `records_max` records, in their order; one that has more is alone."""
    groups: list[list[Range]] = []
    size = 0
    for entry in ranges:
        if groups and size + entry.size <= records_max:
            groups[-1].append(entry)
            size += entry.size
        else:
            groups.append([entry])
            size = entry.size
    return groups
