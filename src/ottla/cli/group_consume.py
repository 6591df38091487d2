"""`ottla consume --group`: records as a member of a group.

An offset is committed after its line has been handed to stdout and flushed: after a crash lines may come twice, none is lost.
Without --follow it ends when every partition it was given is read to its end.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from ottla.cli.connection import Connection
from ottla.cli.consume import incoming, next_messages, reader_properties
from ottla.cli.failure import Failure, explain
from ottla.cli.formats import Writing
from ottla.cli.output import note
from ottla.cli.positions import Position

if TYPE_CHECKING:
    from ottla.cli.client import Consumer, Message

_BATCH_RECORDS = 500
_SILENCE_S = 15.0
_JOIN_S = 60.0
"""Longer than a member that died without a word holds up the others."""

TopicIndex = tuple[str, int]


def consume_as_member(
    connection: Connection,
    group: str,
    topics: Sequence[str],
    start: Position,
    writing: Writing,
    count: int | None,
    *,
    follow: bool,
    isolation: str,
) -> None:
    connection.topics(topics)
    consumer = connection.consumer(
        **{
            **reader_properties(isolation),
            "group.id": group,
            "auto.offset.reset": "earliest" if start.kind == "beginning" else "latest",
        }
    )
    try:
        _Membership(connection, consumer, group, follow).run(list(topics), writing, count)
    finally:
        consumer.close()


class _Membership:
    def __init__(self, connection: Connection, consumer: Consumer, group: str, follow: bool) -> None:
        self._connection = connection
        self._consumer = consumer
        self._group = group
        self._follow = follow
        self._unfinished: set[TopicIndex] = set()
        """Partitions assigned to us that may hold more before their end."""
        self._assigned = False

    def run(self, topics: list[str], writing: Writing, count: int | None) -> None:
        self._consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)
        left = count
        silent_since = started = time.monotonic()
        while self._follow or not self._assigned or self._unfinished:
            # The library says nothing at all where the broker does not know the group's protocol.
            if not self._assigned and not self._follow and time.monotonic() - started > _JOIN_S:
                raise Failure(
                    f"group {self._group} gave us no partition within {_JOIN_S:g} s",
                    f"a member may hold it up, see `ottla group members {self._group}`;"
                    " with group.protocol=consumer the broker must be 4.0 or newer",
                    code="_TIMED_OUT",
                )
            messages = next_messages(self._consumer, min(_BATCH_RECORDS, left or _BATCH_RECORDS))
            written = [message for message in messages if message.error() is None]
            if written:
                for message in written:
                    sys.stdout.buffer.write(writing.line(incoming(message)))
                sys.stdout.buffer.flush()
                self._commit(written)
                left = None if left is None else left - len(written)
                if left is not None and left <= 0:
                    return
            for message in messages:
                self._on_event(message)
            if messages:
                silent_since = time.monotonic()
            elif not self._follow and time.monotonic() - silent_since > _SILENCE_S and self._connection.last_error is not None:
                raise Failure(f"the broker at {self._connection.bootstrap_servers} went away before the end", code="BROKER_AWAY")

    def _on_assign(self, _: Any, partitions: list[Any]) -> None:
        self._assigned = True
        self._unfinished |= {(each.topic, each.partition) for each in partitions}
        if not partitions and not self._follow:
            note(f"group {self._group} gave us no partition: others have them all")

    def _on_revoke(self, _: Any, partitions: list[Any]) -> None:
        self._unfinished -= {(each.topic, each.partition) for each in partitions}

    def _on_event(self, message: Message) -> None:
        from ottla.cli.client import KafkaError

        error = message.error()
        key = (str(message.topic()), int(message.partition() or 0))
        if error is None:
            self._unfinished.add(key)
        elif error.code() == KafkaError._PARTITION_EOF:
            self._unfinished.discard(key)
        elif error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            raise explain(error, f"group {self._group}")

    def _commit(self, messages: list[Message]) -> None:
        from ottla.cli.client import KafkaException, TopicPartition

        ends = {(str(message.topic()), int(message.partition() or 0)): int(message.offset() or 0) + 1 for message in messages}
        try:
            self._consumer.commit(offsets=[TopicPartition(*key, end) for key, end in ends.items()], asynchronous=False)
        except KafkaException as exception:
            error = exception.args[0]
            # Taken from us in this moment: the next owner reads these records again.
            if error.name() not in ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "STALE_MEMBER_EPOCH"):
                raise explain(error, f"group {self._group}") from None
            note(f"group {self._group} rebalances; records may come again")
