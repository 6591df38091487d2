"""Reads ranges of partitions completely, in chunks, newest or oldest first, and yields the selected records in order of time.

A chunk is read forward, as a log can only be. Newest first, the chunks of a partition come from its end to its start. The next
chunk is of the partition whose records come next; a record is yielded once no chunk that is left can have one before it, if
timestamps grow within each partition (where they do not, only the order is less exact; nothing is left out).

Of a batch first all records together are looked at, as the bytes that they are; single records only where one may be taken.

What was scanned is exact at any time, also when the caller stops early: `left` is what another scan must still read.
"""

from __future__ import annotations

import heapq
import math
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from ottla.cli.connection import Connection
from ottla.cli.find.batches import FETCH_BYTES, BatchSource
from ottla.cli.formats import Incoming
from ottla.cli.positions import TopicIndex
from ottla.cli.selection import Selection, Tally
from ottla.records.batch import BatchInfo
from ottla.records.record import Headers, records_in
from ottla.types import TopicPartition

CHUNK_RECORDS_FIRST = 2_000
CHUNK_RECORDS_MAX = 100_000
CHUNK_BYTES = 16 << 20
"""What a chunk should have, by the size of the records so far."""
WAITING_BYTES = 64 << 20
"""What may wait for records before it, of all partitions."""
_FETCH_BYTES_FIRST = 256 << 10
_CREATE_TIME, _LOG_APPEND_TIME = "CreateTime", "LogAppendTime"


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

    def note_time(self, first_ms: int, last_ms: int) -> None:
        """The times of records, in the order of the log."""
        if self.first_ms is None:
            self.first_ms = first_ms
        self.last_ms = last_ms


@dataclass(slots=True)
class _Places:
    """Which records of a partition wait, by their places in the scan: two heaps, of which one takes from the other."""

    waiting: list[int] = field(default_factory=list)
    gone: list[int] = field(default_factory=list)


class Reading(Protocol):
    """Makes text of keys and values that name a schema."""

    def concerns(self, topic: str, key: bytes | None, value: bytes | None, headers: Headers) -> bool:
        """Whether a key or value may name a schema. Others are as they are."""
        ...

    def read(self, record: Incoming) -> Incoming: ...


class Scan:
    def __init__(
        self,
        connection: Connection,
        bounds: Mapping[TopicIndex, tuple[int, int]],
        selection: Selection,
        *,
        newest_first: bool,
        isolation: str = "read_committed",
        yielded: Mapping[TopicIndex, Collection[int]] | None = None,
        reading: Reading | None = None,
    ) -> None:
        """`bounds` are the offsets to scan of each partition: [start, end). Those in `yielded` are left out: see `left`.

        `reading` is how records are read before they are selected, if not as they are."""
        self._selection = selection
        self._reading = reading
        self._yielded = {key: set(offsets) for key, offsets in (yielded or {}).items()}
        self._newest_first = newest_first
        self.tally = Tally()
        self.reaches = [
            Reach(*key, start, end, *((end, end) if newest_first else (start, start)))
            for key, (start, end) in sorted(bounds.items())
        ]
        self._source = BatchSource(connection, isolation)
        self._waiting: list[tuple[float, str, int, int, Incoming]] = []
        self._places: dict[TopicIndex, _Places] = {}
        self._started = time.monotonic()
        self.on_chunk: Callable[[Scan], None] = lambda scan: None
        """Called after each chunk."""

    def __enter__(self) -> Scan:
        return self

    def __exit__(self, *_: object) -> None:
        self._source.close()

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
            record = heapq.heappop(self._waiting)[-1]
            self._out_of_turn(record)
            yield record

    def left(self) -> dict[TopicIndex, tuple[int, int, list[int]]]:
        """What of each partition is not yielded yet, for another scan: its start, its end, and offsets between them that are."""
        waiting: dict[TopicIndex, list[int]] = {}
        for *_, record in self._waiting:
            waiting.setdefault((record.topic, record.partition), []).append(record.offset)
        found = {}
        for reach in self.reaches:
            key = (reach.topic, reach.partition)
            if self._newest_first:
                start, end = reach.start, max([reach.done_from, *(offset + 1 for offset in waiting.get(key, ()))])
            else:
                start, end = min([reach.done_to, *waiting.get(key, ())]), reach.end
            if start < end:
                found[key] = (start, end, sorted(offset for offset in self._yielded.get(key, ()) if start <= offset < end))
        return found

    def _out_of_turn(self, record: Incoming) -> None:
        """Remember a record that is yielded before one that waits and is nearer to the scan's begin, as where timestamps fall."""
        key, place = (record.topic, record.partition), self._place(record)
        places = self._places[key]
        heapq.heappush(places.gone, place)
        while places.gone and places.gone[0] == places.waiting[0]:
            heapq.heappop(places.gone)
            heapq.heappop(places.waiting)
        if places.waiting and places.waiting[0] < place:
            self._yielded.setdefault(key, set()).add(record.offset)

    def _place(self, record: Incoming) -> int:
        return -record.offset if self._newest_first else record.offset

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
        places = self._places.setdefault((reach.topic, reach.partition), _Places())
        for record in chunk.found:
            place = self._place(record)
            heapq.heappush(self._waiting, (self._order(record.timestamp_ms), record.topic, record.partition, place, record))
            heapq.heappush(places.waiting, place)

    def _chunk_records(self, reach: Reach) -> int:
        """Small at first, so that the newest records are there at once; then larger, within a limit of bytes."""
        wanted = max(CHUNK_RECORDS_FIRST, 4 * (reach.done_to - reach.done_from))
        # Where much is taken, a chunk of each partition may wait.
        taken = self.tally.taken + len(self._waiting)
        bytes_max = CHUNK_BYTES if taken * 100 < self.tally.records else min(CHUNK_BYTES, WAITING_BYTES // len(self.reaches))
        fitting = bytes_max * self.tally.records // max(1, self.tally.size_bytes)
        return wanted if not self.tally.records else min(wanted, CHUNK_RECORDS_MAX, max(100, fitting))

    def _read(self, reach: Reach, chunk: _Chunk) -> None:
        """Read the offsets of the chunk. Compacted records, markers and aborted records have none.

        A batch that has nothing comes whole into the chunk at whose edge it is: its records need not be told apart then.
        """
        yielded = self._yielded.get((reach.topic, reach.partition), ())
        for info, section in self._source.read(
            TopicPartition(reach.topic, reach.partition), chunk.start, chunk.end, self._fetch_bytes(chunk)
        ):
            # What the bytes of a value with a schema hold is known only when they are read.
            nothing = self._reading is None and not self._selection.may_take_of(section)
            if nothing and reach.start <= info.base_offset and info.next_offset <= reach.end:
                self._widen(chunk, info)
            whole = chunk.start <= info.base_offset and info.next_offset <= chunk.end
            if whole:
                chunk.note_time(info.max_timestamp if info.is_log_append_time else info.base_timestamp, info.max_timestamp)
                self.tally.records += info.record_count
                self.tally.size_bytes += len(section)
                if nothing:
                    continue
            self._take(reach, chunk, info, section, yielded, counted=whole)

    def _widen(self, chunk: _Chunk, info: BatchInfo) -> None:
        """Only where the scan goes on: what is beyond the other end is scanned."""
        if self._newest_first and info.next_offset <= chunk.end:
            chunk.start = min(chunk.start, info.base_offset)
        elif not self._newest_first and chunk.start <= info.base_offset:
            chunk.end = max(chunk.end, info.next_offset)

    def _take(
        self, reach: Reach, chunk: _Chunk, info: BatchInfo, section: bytes, yielded: Collection[int], *, counted: bool
    ) -> None:
        """Look at the records of a batch that are in the chunk."""
        selection = self._selection
        kind = _LOG_APPEND_TIME if info.is_log_append_time else _CREATE_TIME
        for record in records_in(section, info):
            if not chunk.start <= record.offset < chunk.end:
                continue
            if not counted:
                chunk.note_time(record.timestamp, record.timestamp)
                self.tally.records += 1
                self.tally.size_bytes += len(record.key or b"") + len(record.value or b"")
            if record.offset in yielded:
                continue
            read = self._reading is not None and self._reading.concerns(reach.topic, record.key, record.value, record.headers)
            if not (
                selection.has_key(record.key)
                if read
                else selection.may_take_parts(record.key, record.value, bool(record.headers))
            ):
                continue
            timestamp_ms = record.timestamp if record.timestamp >= 0 else None
            found = Incoming(
                reach.topic,
                reach.partition,
                record.offset,
                timestamp_ms,
                "none" if timestamp_ms is None else kind,
                record.key,
                record.value,
                record.headers,
            )
            if selection.takes(self._reading.read(found) if read and self._reading is not None else found):
                chunk.found.append(found)

    def _fetch_bytes(self, chunk: _Chunk) -> int:
        """Enough for the chunk and not much more, as far as the size of the records so far tells."""
        if not self.tally.records:
            return _FETCH_BYTES_FIRST
        wanted = 2 * (chunk.end - chunk.start) * self.tally.size_bytes // self.tally.records
        return min(FETCH_BYTES, max(_FETCH_BYTES_FIRST, wanted))
