"""Reads ranges of partitions completely, in chunks, newest or oldest first, and yields the selected records in order of time.

A chunk is read forward, as a log can only be. Newest first, the chunks of a partition come from its end to its start. The next
chunk is of the partition whose records come next; a record is yielded once no chunk that is left can have one before it, if
timestamps grow within each partition (where they do not, only the order is less exact; nothing is left out).

What was scanned is exact at any time, also when the caller stops early.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ottla.cli.connection import Connection
from ottla.cli.consume import broker_away, incoming, next_messages, reader_properties
from ottla.cli.failure import explain
from ottla.cli.formats import Incoming
from ottla.cli.positions import TopicIndex
from ottla.cli.selection import Selection, Tally

if TYPE_CHECKING:
    from confluent_kafka import Message

CHUNK_RECORDS_FIRST = 2_000
CHUNK_RECORDS_MAX = 100_000
CHUNK_BYTES = 16 << 20
"""What a chunk should have, by the size of the records so far."""
_BATCH_RECORDS = 10_000
_SILENCE_S = 15.0


@dataclass(slots=True)
class Reach:
    """How far the scan of one partition came. Offsets from `done_from` to `done_to`, exclusive, are scanned."""

    topic: str
    partition: int
    start: int
    end: int
    done_from: int
    done_to: int
    frontier: float = -math.inf
    """The order of its last scanned record: no record that is left comes before, if timestamps grow."""

    @property
    def complete(self) -> bool:
        return self.done_from <= self.start and self.done_to >= self.end

    def document(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "partition": self.partition,
            "start": self.start,
            "end": self.end,
            "scanned_from": self.done_from,
            "scanned_to": self.done_to,
            "complete": self.complete,
        }


@dataclass(slots=True)
class _Chunk:
    start: int
    end: int
    found: list[Incoming] = field(default_factory=list)
    first_ms: int | None = None
    last_ms: int | None = None


class Scan:
    def __init__(
        self,
        connection: Connection,
        bounds: Mapping[TopicIndex, tuple[int, int]],
        selection: Selection,
        *,
        newest_first: bool,
        isolation: str = "read_committed",
    ) -> None:
        """`bounds` are the offsets to scan of each partition: [start, end)."""
        self._connection = connection
        self._selection = selection
        self._newest_first = newest_first
        self.tally = Tally()
        self.reaches = [
            Reach(*key, start, end, *((end, end) if newest_first else (start, start)))
            for key, (start, end) in sorted(bounds.items())
        ]
        self._consumer = connection.consumer(
            **{
                **reader_properties(isolation),
                # Records that retention deletes during the scan are skipped.
                "auto.offset.reset": "earliest",
                # A fetch that waits at the end of a partition would hold up the next chunk.
                "fetch.wait.max.ms": 10,
            },
        )
        self._next: tuple[TopicIndex, int] | None = None
        """What the consumer delivers next."""
        self._waiting: list[tuple[float, str, int, int, Incoming]] = []
        self._started = time.monotonic()
        self.on_chunk: Callable[[Scan], None] = lambda scan: None
        """Called after each chunk."""

    def __enter__(self) -> Scan:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def __iter__(self) -> Iterator[Incoming]:
        while left := [reach for reach in self.reaches if not reach.complete]:
            reach = min(left, key=lambda each: each.frontier)
            self._scan_chunk(reach)
            self.on_chunk(self)
            safe = min((each.frontier for each in self.reaches if not each.complete), default=math.inf)
            yield from self._released(safe)
        yield from self.rest()

    def rest(self) -> Iterator[Incoming]:
        """The records that were found and wait for those before them."""
        yield from self._released(math.inf)

    def _released(self, safe: float) -> Iterator[Incoming]:
        while self._waiting and self._waiting[0][0] <= safe:
            self.tally.taken += 1
            yield heapq.heappop(self._waiting)[-1]

    @property
    def complete(self) -> bool:
        """Whether all is scanned and all that was found is yielded."""
        return not self._waiting and all(reach.complete for reach in self.reaches)

    def document(self) -> dict[str, Any]:
        return {
            "found": self.tally.taken,
            "records": self.tally.records,
            "value_bytes": self.tally.size_bytes,
            "seconds": round(self.seconds, 3),
            "complete": self.complete,
            "partitions": [reach.document() for reach in self.reaches],
        }

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._started

    @property
    def offsets(self) -> tuple[int, int]:
        """How many offsets are scanned, and how many there are."""
        return sum(each.done_to - each.done_from for each in self.reaches), sum(each.end - each.start for each in self.reaches)

    def _order(self, timestamp_ms: int | None) -> float:
        at = -1 if timestamp_ms is None else timestamp_ms
        return -at if self._newest_first else at

    def _scan_chunk(self, reach: Reach) -> None:
        size = self._chunk_records(reach)
        if self._newest_first:
            chunk = _Chunk(max(reach.start, reach.done_from - size), reach.done_from)
        else:
            chunk = _Chunk(reach.done_to, min(reach.end, reach.done_to + size))
        self._read(reach, chunk)
        edge_ms = chunk.first_ms if self._newest_first else chunk.last_ms
        if edge_ms is not None:
            reach.frontier = max(reach.frontier, self._order(edge_ms))
        reach.done_from, reach.done_to = min(reach.done_from, chunk.start), max(reach.done_to, chunk.end)
        sign = -1 if self._newest_first else 1
        for record in chunk.found:
            entry = (self._order(record.timestamp_ms), record.topic, record.partition, sign * record.offset, record)
            heapq.heappush(self._waiting, entry)

    def _chunk_records(self, reach: Reach) -> int:
        """Small at first, so that the newest records are there at once; then larger, within a limit of bytes."""
        wanted = max(CHUNK_RECORDS_FIRST, 4 * (reach.done_to - reach.done_from))
        fitting = CHUNK_BYTES * self.tally.records // max(1, self.tally.size_bytes)
        return wanted if not self.tally.records else min(wanted, CHUNK_RECORDS_MAX, max(100, fitting))

    def _read(self, reach: Reach, chunk: _Chunk) -> None:
        """Read the offsets of the chunk. Compacted records, markers and aborted records have none."""
        from confluent_kafka import KafkaError

        # librdkafka looks for a coordinator although no group is used.
        passing = (KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError.GROUP_AUTHORIZATION_FAILED)
        key = (reach.topic, reach.partition)
        self._seek(key, chunk.start)
        at = chunk.start
        silent_since = time.monotonic()
        while at < chunk.end:
            messages = next_messages(self._consumer, min(_BATCH_RECORDS, chunk.end - at))
            at = self._take([message for message in messages if message.error() is None], chunk, at)
            for error in filter(None, (message.error() for message in messages)):
                if error.code() == KafkaError._PARTITION_EOF:
                    at, self._next = chunk.end, None
                elif error.code() not in passing:
                    raise explain(error, f"{reach.topic}-{reach.partition}")
            if messages:
                silent_since = time.monotonic()
            elif time.monotonic() - silent_since > _SILENCE_S and self._connection.last_error is not None:
                raise broker_away(self._connection)
        if self._next is not None:
            self._next = (key, at)

    def _take(self, records: list[Message], chunk: _Chunk, at: int) -> int:
        """Look at records, which are in order. Returns the offset behind them."""
        if records and _offset(records[-1]) >= chunk.end:
            # The chunk's last offsets have no records. What follows belongs to another chunk, which reads it again.
            records = [record for record in records if _offset(record) < chunk.end]
            at, self._next = chunk.end, None
        if not records:
            return at
        self.tally.add(records)
        chunk.last_ms = records[-1].timestamp()[1]
        if chunk.first_ms is None:
            chunk.first_ms = records[0].timestamp()[1]
        for message in filter(self._selection.may_take, records):
            record = incoming(message)
            if self._selection.takes(record):
                chunk.found.append(record)
        return max(at, _offset(records[-1]) + 1)

    def _seek(self, key: TopicIndex, offset: int) -> None:
        from confluent_kafka import TopicPartition

        if self._next != (key, offset):
            self._consumer.assign([TopicPartition(*key, offset)])
        self._next = (key, offset)


def _offset(message: Message) -> int:
    offset = message.offset()
    assert offset is not None
    return offset
