"""Records as they come. Shows at most so many a second, and says how many it left out.

`begin` and each `progress` hold the token for `continue`: a client that was cut off goes on at the offset where it was. A time
would not do: while a consumer connects again, time passes and nothing is read.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.connection import Connection
from ottla.cli.consume import incoming, reader_properties
from ottla.cli.failure import explain
from ottla.cli.positions import TopicIndex
from ottla.console.records.choosing import reading_of, takes_seen
from ottla.console.records.continuing import word_of
from ottla.console.records.documents import Showing
from ottla.console.records.plan import Plan
from ottla.console.records.stream import Outlet
from ottla.console.sse import EVENT_S

if TYPE_CHECKING:
    from confluent_kafka import Message

SHOWN_PER_EVENT: Final = 100
_BATCH: Final = 2_000
_POLL_S: Final = 0.1
_QUEUE_KB: Final = 8 << 10
"""What the client library holds in memory of records that nobody has taken."""


def tail(connection: Connection, plan: Plan, showing: Showing, outlet: Outlet) -> None:
    """Until the client goes away."""
    from confluent_kafka import KafkaError, TopicPartition

    bounds, notes = plan.bounds(connection)
    consumer = connection.consumer(
        **{
            **reader_properties(plan.isolation),
            # A record that retention deletes meanwhile is left out.
            "auto.offset.reset": "earliest",
            "enable.partition.eof": False,
            "queued.max.messages.kbytes": _QUEUE_KB,
            "fetch.message.max.bytes": 1 << 20,
        }
    )
    passing = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError.GROUP_AUTHORIZATION_FAILED)
    starts = {key: start for key, (start, _) in bounds.items()}
    try:
        consumer.assign([TopicPartition(*key, start) for key, start in sorted(starts.items())])
        outlet.send(
            "begin",
            {
                "partitions": [
                    {"topic": topic, "partition": index, "start": start, "end": None}
                    for (topic, index), start in sorted(starts.items())
                ],
                "notes": notes,
                "order": "live",
                "continue": _word(starts),
            },
        )

        def positions() -> dict[TopicIndex, int]:
            found = consumer.position([TopicPartition(*key) for key in starts])
            # Negative: none of its records was read yet.
            return {key: each.offset if each.offset >= 0 else starts[key] for key, each in zip(starts, found, strict=True)}

        rush, scanned = _Rush(showing, plan, outlet, positions), outlet.scanned
        while True:
            outlet.check()
            messages = []
            for message in consumer.consume(_BATCH, _POLL_S):
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() not in passing:
                    raise explain(error, f"{message.topic()}-{message.partition()}")
            scanned.records += len(messages)
            scanned.size_bytes += sum(map(len, messages))
            rush.look(messages)
            rush.tell()
    finally:
        consumer.close()


def _word(positions: Mapping[TopicIndex, int]) -> str | None:
    return word_of({key: (position, position, []) for key, position in positions.items()})


class _Rush:
    """The newest records since the last event."""

    def __init__(self, showing: Showing, plan: Plan, outlet: Outlet, positions: Callable[[], dict[TopicIndex, int]]) -> None:
        self._showing = showing
        self._plan = plan
        self._outlet = outlet
        self._positions = positions
        self._reading = reading_of(plan.selection, showing)
        self._newest: deque[Message] = deque(maxlen=SHOWN_PER_EVENT)
        self._taken = self._skipped = self._skipped_total = self._found = 0
        self._began_s = self._told_s = time.monotonic()
        self._progress_s = 0.0

    def look(self, messages: Sequence[Message]) -> None:
        # Of a fast topic most are never shown: nothing is taken apart before that without a reason.
        taken = [each for each in messages if self._takes(each)] if self._plan.selection else messages
        self._taken += len(taken)
        self._newest.extend(taken[-SHOWN_PER_EVENT:])

    def _takes(self, message: Message) -> bool:
        selection, reading = self._plan.selection, self._reading
        headers: Any = message.headers() or ()
        if reading is not None and reading.concerns(str(message.topic()), message.key(), message.value(), headers):
            record = incoming(message)
            if not selection.has_key(record.key) or not selection.takes(reading.read(record)):
                return False
        elif not selection.may_take(message) or not selection.takes(record := incoming(message)):
            return False
        return takes_seen(selection, self._showing, record)

    def tell(self) -> None:
        now_s = time.monotonic()
        if now_s - self._told_s < EVENT_S or not (self._taken or now_s - self._progress_s >= 1.0):
            return
        self._told_s = now_s
        if self._taken:
            shown = sorted(map(incoming, self._newest), key=lambda each: each.timestamp_ms or 0)
            skipped = self._taken - len(shown)
            self._found += self._taken
            self._outlet.send("records", {"records": [self._showing.document(each) for each in shown]})
            self._newest.clear()
            self._taken = 0
            if skipped:
                self._skipped_total += skipped
                self._outlet.send("skipped", {"records": skipped, "total": self._skipped_total})
        if now_s - self._progress_s >= 1.0:
            self._progress_s = now_s
            elapsed_s = max(now_s - self._began_s, 0.001)
            self._outlet.send(
                "progress",
                {
                    "found": self._found,
                    "records": self._outlet.scanned.records,
                    "elapsed_s": round(elapsed_s, 1),
                    "records_per_s": round(self._outlet.scanned.records / elapsed_s),
                    "continue": _word(self._positions()),
                },
            )
