"""`ottla consume --group`: prints records as a member of a group.

An offset is committed after its line is flushed to stdout: after a crash, lines may come twice, but none is lost. Without
--follow it ends when every assigned partition is read to its end.

No call waits for a broker inside librdkafka: Ctrl-C would not interrupt it until the broker is back.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NoReturn

from ottla.cli.connection import Connection
from ottla.cli.consume import Printing, broker_away, next_messages, note_if_away, reader_properties
from ottla.cli.failure import Failure, explain
from ottla.cli.group.coordinator import lacking_coordinator
from ottla.cli.output import note
from ottla.cli.positions import Position, TopicIndex

if TYPE_CHECKING:
    from confluent_kafka import Consumer, Message

_SILENCE_S = 15.0
_COORDINATOR_S = 3.0
"""How long a group may be without a coordinator before the user hears of it, and how often it is asked then."""
_JOIN_S = 60.0
"""Longer than the session timeout of a dead member, which holds up the others."""
_CLOSE_S = 5.0


def consume_as_member(
    connection: Connection,
    group: str,
    topics: Sequence[str],
    start: Position,
    printing: Printing,
    *,
    follow: bool,
    isolation: str,
) -> None:
    connection.topics(topics)
    membership: _Membership
    consumer = connection.consumer(
        **{
            **reader_properties(isolation),
            "group.id": group,
            "auto.offset.reset": "earliest" if start.kind == "beginning" else "latest",
            "on_commit": lambda error, _: membership.committed(error),
        }
    )
    membership = _Membership(connection, consumer, group, follow)
    # Leave the group also on SIGTERM (`timeout` sends it): otherwise the others wait for the session timeout.
    before = signal.signal(signal.SIGTERM, terminated)
    try:
        with printing:
            membership.run(list(topics), printing)
    finally:
        closing = threading.Thread(target=consumer.close, daemon=True)
        closing.start()
        closing.join(_CLOSE_S)
        signal.signal(signal.SIGTERM, before)


def terminated(number: int, _: object) -> NoReturn:
    """Raises an instance, which `sys.exit` does not: in a callback confluent-kafka would make a SystemError of it."""
    raise SystemExit(128 + number)


class _Membership:
    def __init__(self, connection: Connection, consumer: Consumer, group: str, follow: bool) -> None:
        self._connection = connection
        self._consumer = consumer
        self._group = group
        self._follow = follow
        self._unfinished: set[TopicIndex] = set()
        """Assigned partitions that are not read to their end."""
        self._assigned = False
        self._commits = 0
        """Commits without a response yet."""
        self._not_committed: Any = None
        self._coordinator_asked = time.monotonic()
        self._no_coordinator: Failure | None = None
        """Why the group has no coordinator, while it has none."""

    def run(self, topics: list[str], printing: Printing) -> None:
        self._consumer.subscribe(topics, on_assign=self._on_assign, on_revoke=self._on_revoke, on_lost=self._on_revoke)
        silent_since = started = time.monotonic()
        while self._follow or not self._assigned or self._unfinished or self._commits:
            if printing.finished and not self._commits:
                return
            if self._no_coordinator is not None and not self._follow and time.monotonic() - started > _SILENCE_S:
                raise self._no_coordinator
            # librdkafka reports nothing if the broker does not support the group protocol.
            if not self._assigned and not self._follow and time.monotonic() - started > _JOIN_S:
                raise Failure(
                    f"group {self._group} assigned no partition within {_JOIN_S:g} s",
                    f"look for a member that does not respond with `ottla group members {self._group}`;"
                    " group.protocol=consumer needs a broker of 4.0 or newer",
                    code="_TIMED_OUT",
                )
            # After the last wanted record only commits are awaited. Records that come meanwhile are not committed.
            messages = next_messages(self._consumer, printing.batch_records)
            taken = self._take(messages, printing)
            if taken:
                sys.stdout.buffer.flush()
                self._commit(taken)
            for message in messages:
                self._on_event(message)
            if self._not_committed is not None:
                raise explain(self._not_committed, f"group {self._group}")
            if not self._assigned:
                self._look_for_coordinator()
            if self._follow:
                note_if_away(self._connection)
            if messages:
                silent_since = time.monotonic()
            elif not self._follow and time.monotonic() - silent_since > _SILENCE_S and self._connection.last_error is not None:
                raise broker_away(self._connection)

    @staticmethod
    def _take(messages: list[Message], printing: Printing) -> list[Message]:
        """The records that were read until the last wanted one, printed or not."""
        taken = []
        for message in messages:
            if message.error() is None and not printing.finished:
                printing.take(message)
                taken.append(message)
        return taken

    def _look_for_coordinator(self) -> None:
        """librdkafka asks for a coordinator for ever, and does not say so."""
        now = time.monotonic()
        if now - self._coordinator_asked < _COORDINATOR_S:
            return
        self._coordinator_asked = now
        before, self._no_coordinator = self._no_coordinator, lacking_coordinator(self._connection, self._group)
        if self._no_coordinator is not None and (before is None or before.message != self._no_coordinator.message):
            note(f"waiting: {self._no_coordinator.message}\n  {self._no_coordinator.hint}")

    def _on_assign(self, _: Any, partitions: list[Any]) -> None:
        self._assigned = True
        self._unfinished |= {(each.topic, each.partition) for each in partitions}
        if not partitions and not self._follow:
            note(f"group {self._group} assigned no partition: other members have them all")

    def _on_revoke(self, _: Any, partitions: list[Any]) -> None:
        self._unfinished -= {(each.topic, each.partition) for each in partitions}

    def _on_event(self, message: Message) -> None:
        from confluent_kafka import KafkaError

        error = message.error()
        key = (str(message.topic()), int(message.partition() or 0))
        if error is None:
            self._unfinished.add(key)
        elif error.code() == KafkaError._PARTITION_EOF:
            self._unfinished.discard(key)
        elif error.code() not in (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT):
            raise explain(error, f"group {self._group}" if message.topic() is None else f"{key[0]}-{key[1]}")

    def _commit(self, messages: list[Message]) -> None:
        from confluent_kafka import TopicPartition

        ends = {(str(message.topic()), int(message.partition() or 0)): int(message.offset() or 0) + 1 for message in messages}
        self._commits += 1
        self._consumer.commit(offsets=[TopicPartition(*key, end) for key, end in ends.items()], asynchronous=True)

    def committed(self, error: Any) -> None:
        """The result of a commit. librdkafka calls it while the consumer is polled."""
        self._commits -= 1
        if error is None:
            return
        # The partition was revoked meanwhile: its next owner reads these records again.
        if error.name() in ("ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "REBALANCE_IN_PROGRESS", "STALE_MEMBER_EPOCH"):
            note(f"group {self._group} rebalances; records may be read again")
        elif self._follow and (error.retriable() or error.name().startswith("_")):
            note(f"group {self._group}: an offset was not committed, records may be read again ({error.str()})")
        else:
            self._not_committed = self._not_committed or error
