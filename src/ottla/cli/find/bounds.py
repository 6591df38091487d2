"""The offsets that a search reads: of topics, between positions, or only of the partitions that have a key."""

from __future__ import annotations

import time
from collections.abc import Mapping

from ottla.cli.connection import Connection
from ottla.cli.consume import find_bounds
from ottla.cli.find.placing import partitions_of_key
from ottla.cli.positions import TopicIndex, parse_position

Extents = dict[TopicIndex, tuple[int, int]]
"""Start and end, exclusive, by partition."""


def scan_bounds(connection: Connection, topics: list[str], start: str, until: str | None, isolation: str) -> Extents:
    now_ms = int(time.time() * 1000)
    last = None if until is None else parse_position(until, now_ms)
    bounds = find_bounds(connection, topics, None, parse_position(start, now_ms), last, follow=False, isolation=isolation)
    # Without `follow` every partition has an end.
    return {key: (begin, max(begin, bounds.end[key] or begin)) for key, begin in bounds.start.items()}


def partition_counts(connection: Connection, bounds: Extents) -> dict[str, int]:
    """How many partitions each topic has."""
    known = connection.metadata().topics
    return {topic: len(known[topic].partitions) for topic, _ in bounds}


def only_of_key(bounds: Extents, key: bytes, partitions: Mapping[str, int]) -> tuple[Extents, list[str]]:
    """The partitions in which producers put the key, and for each topic which they are and why. `partitions` is how many each
    topic has."""
    if not key:
        return bounds, []  # librdkafka distributes records with an empty key
    chosen: Extents = {}
    said = []
    for topic in sorted({topic for topic, _ in bounds}):
        places = partitions_of_key(key, partitions[topic])
        indexes = sorted(set(places.values()))
        named = [f"{topic}-{index} ({', '.join(name for name, place in places.items() if place == index)})" for index in indexes]
        said.append(f"the key belongs to {' or '.join(named)}")
        chosen |= {(topic, index): bounds[topic, index] for index in indexes if (topic, index) in bounds}
    return chosen, said
