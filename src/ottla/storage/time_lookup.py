"""Finding records of a log by their timestamps (W06).

Timestamps need not grow with offsets. A segment says by its largest one whether it can hold an answer, its time index from where
on, the headers of batches which of them, and only that batch is read and unpacked.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla.records.record import offset_of_max_timestamp, offset_of_timestamp, read_records
from ottla.storage.results import OffsetByTime
from ottla.storage.segment import Segment
from ottla.types import TimestampAndOffset


def first_at_or_after(segments: Sequence[Segment], log_start_offset: int, timestamp_ms: int) -> OffsetByTime | None:
    for segment in segments:
        if segment.end_offset > log_start_offset and segment.size and segment.max_timestamp >= timestamp_ms:
            found = _search(segment, log_start_offset, timestamp_ms)
            if found is not None:
                return found
    return None


def _search(segment: Segment, log_start_offset: int, timestamp_ms: int) -> OffsetByTime | None:
    start_offset = max(segment.time_index.offset_before(timestamp_ms), log_start_offset)
    for batch, read in segment.batches(segment.index.position_of(start_offset)):
        if batch.max_timestamp < timestamp_ms or batch.last_offset < log_start_offset:
            continue
        data = read()
        batch.position = 0
        found = offset_of_timestamp(data, batch, timestamp_ms)
        if found is not None and found.offset < log_start_offset:  # deleted, though its batch is still there
            later = (record for record in read_records(data, batch) if record.offset >= log_start_offset)
            late = next((record for record in later if record.timestamp >= timestamp_ms), None)
            found = TimestampAndOffset(late.timestamp, late.offset) if late is not None else None
        if found is not None:
            return OffsetByTime(found.timestamp_ms, found.offset, batch.leader_epoch)
    return None


def first_of_largest(segments: Sequence[Segment]) -> OffsetByTime | None:
    latest = max(segments, key=lambda segment: segment.max_timestamp)
    if latest.max_timestamp < 0:
        return None
    for batch, read in latest.batches(latest.index.position_of(latest.offset_of_max_timestamp)):
        if batch.max_timestamp == latest.max_timestamp:
            data = read()
            batch.position = 0
            found = offset_of_max_timestamp(data, batch)
            return OffsetByTime(found.timestamp_ms, found.offset, batch.leader_epoch)
    return None
