"""Copies the records of a topic. Never prints.

The progress of each source partition is committed with the records: its next offset, under the source topic if that is in the
same cluster, else under the copy (a broker takes offsets only for topics it has). The metadata names both topics by id: after one
of them was made anew the copy begins again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.cli.connection import Connection
from ottla.cli.consume import Bounds
from ottla.cli.copying.layout import topic_id
from ottla.cli.copying.transfer import Committed, Transfer, headers_of, timestamp_of
from ottla.cli.failure import EXIT_USAGE, Failure
from ottla.cli.positions import TopicIndex
from ottla.cli.reading import Reader

if TYPE_CHECKING:
    from confluent_kafka import Message

_COMMIT_S = 1.0
_COMMIT_RECORDS = 20_000
_BATCH_RECORDS = 500
_THROTTLED_RECORDS = 20


@dataclass(slots=True)
class Copied:
    records: int = 0
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class Route:
    """From where to where."""

    source: Connection
    topic: str
    target: Connection
    target_topic: str

    @property
    def same_cluster(self) -> bool:
        return self.source is self.target or self.source.metadata().cluster_id == self.target.metadata().cluster_id

    def name(self) -> str:
        """The group and transactional id. Copies from several clusters to one have their own."""
        place = "" if self.same_cluster else f".{self.source.metadata().cluster_id}"
        return f"ottla-copy{place}.{self.topic}.{self.target_topic}"


class Copy:
    def __init__(self, route: Route, transfer: Transfer) -> None:
        self._route = route
        self._transfer = transfer
        self._marker = f"ottla-copy/1 {topic_id(route.source, route.topic)} {topic_id(route.target, route.target_topic)}"
        self._sources = len(route.source.topic(route.topic).partitions)
        self._targets = len(route.target.topic(route.target_topic).partitions)
        self._key_topic = route.topic if route.same_cluster else route.target_topic
        if not route.same_cluster and self._targets < self._sources:
            raise Failure(
                f"topic {route.target_topic} has {self._targets} partitions, fewer than the {self._sources} of {route.topic}",
                f"add some with `ottla topic alter {route.target_topic} -p {self._sources}`",
                exit_code=EXIT_USAGE,
            )

    def progress(self) -> dict[TopicIndex, int]:
        """The next offset of the source partitions that an earlier run has begun."""
        keys = [(self._key_topic, index) for index in range(self._sources)]
        return {
            (self._route.topic, index): each.offset
            for (_, index), each in self._transfer.committed(keys).items()
            if each.metadata == self._marker
        }

    def run(self, bounds: Bounds, bytes_per_s: float | None, told: Callable[[Copied], None]) -> Copied:
        """Copy what is within the bounds. Calls `told` after each transaction."""
        reader = Reader(self._route.source, bounds)
        copied = Copied()
        done = dict(bounds.start)
        began = committed = time.monotonic()
        pending = 0
        for messages in reader.batches(_BATCH_RECORDS if bytes_per_s is None else _THROTTLED_RECORDS):
            for message in messages:
                self._send(message)
                copied.size_bytes += len(message)
            copied.records += len(messages)
            pending += len(messages)
            ahead_s = 0.0 if bytes_per_s is None else copied.size_bytes / bytes_per_s - (time.monotonic() - began)
            if pending >= _COMMIT_RECORDS or ahead_s >= _COMMIT_S or time.monotonic() - committed >= _COMMIT_S:
                done = self._commit(reader.positions, done)
                pending, committed = 0, time.monotonic()
                told(copied)
            if ahead_s > 0:
                time.sleep(ahead_s)
        self._commit(reader.positions, done)
        told(copied)
        return copied

    def _send(self, message: Message) -> None:
        index = int(message.partition() or 0)
        partition: int | None = index
        if self._targets < self._sources:
            # As a producer would choose: records of a key stay together and in order.
            partition = None if message.key() is not None else index % self._targets
        self._transfer.send(
            self._route.target_topic,
            message.key(),
            message.value(),
            headers_of(message),
            partition=partition,
            timestamp_ms=timestamp_of(message),
        )

    def _commit(self, positions: dict[TopicIndex, int], done: dict[TopicIndex, int]) -> dict[TopicIndex, int]:
        """Commit the records sent and the positions behind them, if they have moved. A copy of the positions."""
        if positions != done:
            self._transfer.commit(
                {(self._key_topic, index): Committed(offset, self._marker) for (_, index), offset in positions.items()}
            )
        return dict(positions)
