"""Topics and partitions as people type them: `orders`, `orders:0,2`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ottla.cli.connection import Connection, unknown_partition
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.positions import TopicIndex


def parse_scope(words: Sequence[str]) -> dict[str, list[int] | None]:
    """`orders` and `orders:0,2` as topic and partitions. None means all partitions."""
    scope: dict[str, list[int] | None] = {}
    for word in words:
        topic, colon, numbers = word.partition(":")
        indexes = [number.strip() for number in numbers.split(",")] if colon else []
        if not topic or not all(number.isdecimal() for number in indexes):
            raise Failure(
                f"{word!r} is not a topic with partitions",
                "write topic, or topic:0,1,2 for some of its partitions",
                exit_code=EXIT_USAGE,
            )
        chosen = scope.get(topic, [])
        scope[topic] = None if not colon or chosen is None else sorted({*chosen, *map(int, indexes)})
    return scope


def scoped_partitions(connection: Connection, scope: Mapping[str, Sequence[int] | None]) -> list[TopicIndex]:
    """The partitions that the scope names. Failure if one does not exist."""
    keys = []
    for topic in connection.topics(scope):
        name = topic.topic
        assert name is not None
        chosen = scope[name]
        for partition in sorted(topic.partitions) if chosen is None else chosen:
            if partition not in topic.partitions:
                raise unknown_partition(name, partition, len(topic.partitions))
            keys.append((name, partition))
    return sorted(keys)
