"""Scans the batches of a .log file.

`scan_file` finds the valid prefix of a file, for recovery; `index_file` does so by the headers alone, to rebuild an index; `seek`
goes from an index entry to the batch that a reader wants. `IndexBuilder` decides which batches get an index entry. Compiled by
mypyc: `seek` runs for every fetch, the others over whole segments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.errors import MalformedInput
from ottla.ports import File
from ottla.records.batch import RECORDS_AT, BatchInfo, batch_crc_ok, read_batch_header
from ottla.storage.offset_index import INT32_MAX, OffsetIndex
from ottla.storage.time_index import TimeIndex
from ottla.types import NO_TIMESTAMP

if TYPE_CHECKING:
    from mypy_extensions import i64

CHUNK_BYTES: Final = 4 << 20
LARGE_BYTES: Final = 1 << 13
"""After a batch of this size, only the header of the next one is read."""
SEEK_BYTES: Final = 8192
"""Read at once to find a batch: a bit more than usually is between two index entries."""


def scan_file(
    file: File, size: int, base_offset: int, offset_limit: int, check_crc: bool, on_batch: Callable[[BatchInfo], None]
) -> int:
    """Call `on_batch` for each valid batch in the first `size` bytes of a file. Returns the position of the first invalid one.

    Invalid is a batch that is incomplete or not of format v2, has a wrong CRC, or has offsets that do not increase, exceed the
    segment's range of 2^31 or reach `offset_limit`. The CRC does not cover the base offset: if the offsets of two neighbours
    overlap, the earlier one is invalid if there is a gap before it, otherwise the later one. For that, each batch is held until
    the next one is read.
    """
    offset_limit = min(offset_limit, base_offset + INT32_MAX + 1)
    held: BatchInfo | None = None
    next_offset = base_offset  # behind the batches passed to on_batch
    good = 0  # bytes of these batches
    position = 0
    while size - position >= RECORDS_AT:
        count = min(CHUNK_BYTES, size - position)
        chunk = file.read(position, count)
        at = 0
        broken = len(chunk) < count
        while len(chunk) - at >= RECORDS_AT:
            batch_bytes = 12 + int.from_bytes(chunk[at + 8 : at + 12], "big", signed=True)
            if batch_bytes > len(chunk) - at:
                if at or batch_bytes > size - position:
                    break
                chunk = file.read(position, batch_bytes)
                if len(chunk) < batch_bytes:
                    broken = True
                    break
            try:
                info = read_batch_header(chunk, at)
            except MalformedInput:
                broken = True
                break
            last_offset = info.base_offset + info.last_offset_delta
            if (
                info.base_offset < next_offset
                or last_offset < info.base_offset
                or last_offset >= offset_limit
                or (check_crc and not batch_crc_ok(chunk, info))
            ):
                broken = True
                break
            info.position = position + at
            if held is not None:
                if info.base_offset <= held.last_offset:
                    if held.base_offset > next_offset:
                        return good
                    broken = True
                    break
                on_batch(held)
                good += held.size
                next_offset = held.last_offset + 1
            held = info
            at += batch_bytes
        if broken or at == 0:
            break
        position += at
    if held is not None:
        on_batch(held)
        good += held.size
    return good


class IndexBuilder:
    """Builds the offset and time index of a segment, batch by batch."""

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.index = OffsetIndex(base_offset)
        self.time_index = TimeIndex(base_offset)
        self.max_timestamp: i64 = NO_TIMESTAMP
        self.offset_of_max: i64 = base_offset
        self.position: i64 = 0
        """The position behind the last batch."""
        self.entry_at: i64 = 0
        """The position of the last index entry."""
        self._interval_bytes: i64 = interval_bytes

    def add(self, size: i64, last_offset: i64, timestamp: i64) -> None:
        """Add a batch; NO_TIMESTAMP for one that compaction emptied."""
        if timestamp > self.max_timestamp:
            self.max_timestamp = timestamp
            self.offset_of_max = last_offset
        position = self.position
        if position - self.entry_at > self._interval_bytes:
            self.index.append(last_offset, position)
            self.time_index.append(self.max_timestamp, self.offset_of_max)
            self.entry_at = position
        self.position = position + size


def index_file(file: File, size: i64, base_offset: i64, built: IndexBuilder) -> i64:
    """Build the indexes of the first `size` bytes of a file. As `scan_file` without CRC checks, but faster: a segment may have
    millions of batches, and only a few header fields are read."""
    offset_limit: i64 = base_offset + INT32_MAX + 1
    next_offset: i64 = base_offset
    held_bytes: i64 = 0  # of the held batch; 0: none
    held_base: i64 = 0
    held_last: i64 = 0
    held_timestamp: i64 = NO_TIMESTAMP
    position: i64 = 0
    batch_bytes: i64 = 0
    broken = False
    while not broken and size - position >= RECORDS_AT:
        count: i64 = CHUNK_BYTES if batch_bytes < LARGE_BYTES else RECORDS_AT
        chunk = file.read(position, min(count, size - position))
        have: i64 = len(chunk)
        at: i64 = 0
        while have - at >= RECORDS_AT:
            # A sign bit in one of the three is invalid, and would leave the range of int64.
            if chunk[at] > 127 or chunk[at + 8] > 127 or chunk[at + 23] > 127 or chunk[at + 16] != 2:
                broken = True
                break
            batch_bytes = 12 + _int32(chunk, at + 8)
            base: i64 = _int32(chunk, at) << 32 | _int32(chunk, at + 4)
            last: i64 = base + _int32(chunk, at + 23)
            if (
                batch_bytes < RECORDS_AT
                or position + at + batch_bytes > size
                or base < next_offset
                or last < base
                or last >= offset_limit
            ):
                broken = True
                break
            if held_bytes:
                if base <= held_last:
                    if held_base > next_offset:
                        held_bytes = 0
                    broken = True
                    break
                built.add(held_bytes, held_last, held_timestamp)
                next_offset = held_last + 1
            held_bytes, held_base, held_last, held_timestamp = batch_bytes, base, last, NO_TIMESTAMP
            if chunk[at + 35] <= 127 and _int32(chunk, at + 57):  # emptied by compaction
                held_timestamp = _int32(chunk, at + 35) << 32 | _int32(chunk, at + 39)
            at += batch_bytes
        if at == 0:
            break
        position += at
    if held_bytes:
        built.add(held_bytes, held_last, held_timestamp)
    return built.position


def seek(
    file: File, size: i64, position: i64, offset_min: i64, offset: i64, limit: i64, first_bytes: i64 = SEEK_BYTES
) -> tuple[i64, i64, i64, i64]:
    """Find the first batch from `position` on that ends at or behind `offset`, or beyond the position `limit`.

    The first read is of `first_bytes`: fewer, if the distance to the batch is known.

    Returns its position, base offset, last offset and end position. If there is none: `size`, and the other values of the last
    batch. MalformedInput if the bytes are no valid batch header, or its offset is below `offset_min`.
    """
    base: i64 = -1
    last: i64 = offset_min - 1
    end: i64 = position
    count: i64 = first_bytes
    while position < size:
        chunk = file.read(position, min(count, size - position))
        count = SEEK_BYTES
        have: i64 = len(chunk)
        at: i64 = 0
        while at + RECORDS_AT <= have:
            # A sign bit in one of the three is invalid, and would leave the range of int64.
            if chunk[at] > 127 or chunk[at + 8] > 127 or chunk[at + 23] > 127 or chunk[at + 16] != 2:
                raise MalformedInput(f"no record batch at position {position + at} of {file.path}")
            base = _int32(chunk, at) << 32 | _int32(chunk, at + 4)
            length: i64 = _int32(chunk, at + 8)
            last = base + _int32(chunk, at + 23)
            end = position + at + 12 + length
            if length < RECORDS_AT - 12 or end > size or base < offset_min:
                raise MalformedInput(f"no record batch at position {position + at} of {file.path}")
            if last >= offset or end > limit:
                return position + at, base, last, end
            at += 12 + length
        if at == 0:
            raise MalformedInput(f"no record batch at position {position} of {file.path}")
        position += at
    return size, base, last, end


def _int32(data: bytes, at: i64) -> i64:
    b0: i64 = data[at]
    b1: i64 = data[at + 1]
    b2: i64 = data[at + 2]
    b3: i64 = data[at + 3]
    return b0 << 24 | b1 << 16 | b2 << 8 | b3
