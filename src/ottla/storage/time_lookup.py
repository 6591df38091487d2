"""Finds records by timestamp (W06). Timestamps need not increase with offsets.

The largest timestamp of a segment tells whether it can have the record, the time index from which offset on, the batch headers in
which batch; only that batch is decompressed.

`inline_bytes_max` bounds the work on the event loop: a search that has to read or decompress more raises `Unfinished`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.records.batch import BatchInfo, read_batch_header
from ottla.records.compression import TooLarge
from ottla.records.record import offset_of_max_timestamp, offset_of_timestamp
from ottla.storage.results import OffsetByTime
from ottla.storage.segment import Segment
from ottla.types import TimestampAndOffset

LetOthersRun = Callable[[], None]
Look = Callable[[LetOthersRun], OffsetByTime | None]
Find = Callable[..., TimestampAndOffset | None]
"""Searches one batch: `offset_of_timestamp` or `offset_of_max_timestamp`."""


class Unfinished(Exception):
    """The search has no result yet. `look` searches a large batch; it only reads a file, so any thread may call it. If it finds
    nothing, or is None, the search continues at `next_offset`."""

    def __init__(self, next_offset: int, look: Look | None) -> None:
        super().__init__(f"the search by timestamp continues at offset {next_offset}")
        self.next_offset = next_offset
        self.look = look


def first_at_or_after(
    segments: Sequence[Segment], start_offset: int, timestamp_ms: int, inline_bytes_max: int | None = None
) -> OffsetByTime | None:
    for segment in segments:
        if segment.end_offset > start_offset and segment.size and segment.max_timestamp >= timestamp_ms:
            found = _search(segment, start_offset, timestamp_ms, inline_bytes_max)
            if found is not None:
                return found
    return None


def _search(segment: Segment, start_offset: int, timestamp_ms: int, inline_bytes_max: int | None) -> OffsetByTime | None:
    begun = -1
    find = partial(offset_of_timestamp, target_ms=timestamp_ms, start_offset=start_offset)
    for batch, read in segment.batches(
        segment.index.position_of(max(segment.time_index.offset_before(timestamp_ms), start_offset))
    ):
        if batch.last_offset < start_offset:
            continue
        if begun < 0:
            begun = batch.position
        if inline_bytes_max is not None and batch.position - begun > inline_bytes_max:
            raise Unfinished(batch.base_offset, None)
        if batch.max_timestamp < timestamp_ms:
            continue
        found = _look_here(batch, partial(_look_into, read, find), inline_bytes_max)
        if found is not None:
            return found
    return None


def first_of_largest(segments: Sequence[Segment], inline_bytes_max: int | None = None) -> OffsetByTime | None:
    latest = max(segments, key=lambda segment: segment.max_timestamp)
    if latest.max_timestamp < 0:
        return None
    for batch, read in latest.batches(latest.index.position_of(latest.offset_of_max_timestamp)):
        if batch.max_timestamp == latest.max_timestamp:
            return _look_here(batch, partial(_look_into, read, offset_of_max_timestamp), inline_bytes_max)
    return None


def _look_here(
    batch: BatchInfo, look: Callable[[int | None, LetOthersRun | None], OffsetByTime | None], inline_bytes_max: int | None
) -> OffsetByTime | None:
    if inline_bytes_max is None:
        return look(None, None)
    if batch.size <= inline_bytes_max:
        try:
            return look(inline_bytes_max, None)
        except TooLarge:
            pass
    raise Unfinished(batch.next_offset, partial(look, None))


def _look_into(
    read: Callable[[], bytes], find: Find, inline_bytes_max: int | None, let_others_run: LetOthersRun | None
) -> OffsetByTime | None:
    data = read()
    try:
        batch = read_batch_header(data, 0)
        found = find(data, batch, inline_bytes_max=inline_bytes_max, let_others_run=let_others_run)
    except MalformedInput as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return OffsetByTime(found.timestamp_ms, found.offset, batch.leader_epoch) if found is not None else None
