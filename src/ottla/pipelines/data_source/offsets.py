"""How far a query has read: the offsets in Spark's checkpoint, and the arithmetic on them. Pure: no client, no Spark.

Their JSON is `{"orders": {"0": 17, "1": 4}, "#orders": "<topic id>"}`: offsets by topic and partition as in Spark's Kafka source,
and the id of each topic, which shows that a topic was deleted and recreated (`#` cannot begin a topic name). Equal offsets have
equal JSON: Spark compares the texts to find out whether there is anything new.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from ottla.types import TopicPartition

_ID = "#"


@dataclass(frozen=True, slots=True)
class SourceOffsets:
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """Empty for clusters without topic ids."""

    def document(self) -> dict[str, Any]:
        return {**nested(self.positions), **{_ID + topic: self.topic_ids[topic] for topic in sorted(self.topic_ids)}}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> SourceOffsets:
        positions: dict[TopicPartition, int] = {}
        topic_ids: dict[str, str] = {}
        for name, value in document.items():
            if name.startswith(_ID):
                topic_ids[name[1:]] = str(value)
            else:
                positions.update({TopicPartition(name, int(partition)): int(offset) for partition, offset in value.items()})
        return cls(positions, topic_ids)


def nested(positions: Mapping[TopicPartition, int]) -> dict[str, dict[str, int]]:
    """Offsets as {topic: {partition: offset}}, in order."""
    found: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in sorted(positions.items()):
        found.setdefault(topic, {})[str(partition)] = offset
    return found


def topic_id_text(topic_id: bytes) -> str | None:
    """The id as Kafka's tools print it, or None for the zero id."""
    return base64.urlsafe_b64encode(topic_id).decode().rstrip("=") if any(topic_id) else None


class OffsetRange(NamedTuple):
    where: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


def available(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """The number of offsets to read in each partition. New partitions start at 0."""
    return {where: max(end - start.get(where, 0), 0) for where, end in latest.items()}


def limited(
    start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], count_max: int
) -> dict[TopicPartition, int]:
    """End offsets for a batch of about `count_max` offsets, in proportion to what each partition has, at least one each."""
    sizes = available(start, latest)
    total = sum(sizes.values())
    if total <= count_max:
        return dict(latest)
    ends: dict[TopicPartition, int] = {}
    for where, end in latest.items():
        size = sizes[where]
        if size == 0:
            # A new empty partition, or lost data, which the planner reports.
            ends[where] = end
        else:
            ends[where] = start.get(where, 0) + min(size, max(count_max * size // total, 1))
    return ends


def split_ranges(ranges: Iterable[OffsetRange], pieces_min: int | None, records_max: int | None) -> list[OffsetRange]:
    """The ranges, large ones cut into pieces: about `pieces_min` in all, none above `records_max`."""
    whole = [entry for entry in ranges if entry.size > 0]
    total = sum(entry.size for entry in whole)
    found: list[OffsetRange] = []
    for entry in whole:
        pieces = 1
        if records_max is not None:
            pieces = -(-entry.size // records_max)
        if pieces_min is not None and len(whole) < pieces_min:
            pieces = max(pieces, round(entry.size / total * pieces_min), 1)
        pieces = min(pieces, entry.size)
        for number in range(pieces):
            begin = entry.start + entry.size * number // pieces
            found.append(OffsetRange(entry.where, begin, entry.start + entry.size * (number + 1) // pieces))
    return found


def group_ranges(ranges: Iterable[OffsetRange], records_max: int) -> list[list[OffsetRange]]:
    """The ranges in order, in groups of at most `records_max` records. A larger range is a group by itself."""
    groups: list[list[OffsetRange]] = []
    size = 0
    for entry in ranges:
        if groups and size + entry.size <= records_max:
            groups[-1].append(entry)
            size += entry.size
        else:
            groups.append([entry])
            size = entry.size
    return groups
