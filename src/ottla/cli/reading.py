"""Reads the records between bounds, for commands that do more with them than print. Never prints."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla.cli.connection import Connection
from ottla.cli.consume import Bounds, broker_away, next_messages, reader_properties
from ottla.cli.failure import explain
from ottla.cli.positions import TopicIndex

if TYPE_CHECKING:
    from confluent_kafka import Message

_SILENCE_S = 30.0


class Reader:
    """One pass over the committed records of partitions. `positions` is how far it is, in each: the next offset to read."""

    def __init__(self, connection: Connection, bounds: Bounds) -> None:
        self._connection = connection
        self._bounds = bounds
        self.positions: dict[TopicIndex, int] = dict(bounds.start)

    def batches(self, count: int = 500) -> Iterator[list[Message]]:
        """The records, up to `count` at a time; an empty list if none came for a moment. Ends when all bounds are reached.

        Offsets without a visible record (markers, aborted and compacted ones) count as read.
        """
        from confluent_kafka import TopicPartition

        open_ = self._bounds.open()
        if not open_:
            return
        consumer = self._connection.consumer(**reader_properties())
        try:
            consumer.assign([TopicPartition(*key, self._bounds.start[key]) for key in sorted(open_)])
            heard = time.monotonic()
            while open_:
                messages = next_messages(consumer, count)
                if messages:
                    heard = time.monotonic()
                elif time.monotonic() - heard > _SILENCE_S and self._connection.last_error is not None:
                    raise broker_away(self._connection)
                yield [message for message in messages if self._take(message, open_)]
        finally:
            consumer.close()

    def _take(self, message: Message, open_: set[TopicIndex]) -> bool:
        """Whether the message is a record within the bounds. Moves the position."""
        from confluent_kafka import KafkaError

        key = (str(message.topic()), int(message.partition() or 0))
        end = self._bounds.end[key]
        error = message.error()
        if error is not None:
            if error.code() == KafkaError._PARTITION_EOF:
                self._at(key, int(message.offset() or 0), end, open_)
                return False
            if error.code() in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError.GROUP_AUTHORIZATION_FAILED):
                return False
            raise explain(error, f"{key[0]}-{key[1]}")
        offset = int(message.offset() or 0)
        if key not in open_ or (end is not None and offset >= end):
            self._at(key, offset, end, open_)
            return False
        self._at(key, offset + 1, end, open_)
        return True

    def _at(self, key: TopicIndex, position: int, end: int | None, open_: set[TopicIndex]) -> None:
        if key not in open_:
            return
        self.positions[key] = position if end is None else min(position, end)
        if end is not None and position >= end:
            open_.discard(key)
