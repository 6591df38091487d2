"""Going over the batches of a segment file, believing nothing.

Owns: the judgement which prefix of a `.log` file is whole (`scan_file`: recovery has every CRC checked; where only an index is
lost the headers are followed, `index_file`), and the steps from an index entry to the batch that a reader wants (`seek`).
`IndexBuilder` says which batches an index names, for both.
Compiled by mypyc: one loop sees all batches of a broker that died, one those of a segment while clients wait, one runs per fetch.
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
"""After a batch of that size only the header of the next is read."""
SEEK_BYTES: Final = 8192
"""Read at once while looking for a batch: a bit more than what usually lies between two index entries."""


def scan_file(
    file: File, size: int, base_offset: int, offset_limit: int, check_crc: bool, on_batch: Callable[[BatchInfo], None]
) -> int:
    """Hand over batch after batch of the file's first `size` bytes, up to the first that is wrong. Returns where that is.

    Wrong is: cut off, not of format v2, a CRC that does not fit, offsets that do not grow, leave the segment's range of 2^31 or
    reach `offset_limit`. The base offset is not covered by the CRC: where two neighbours contradict each other, the earlier one
    is wrong if it left a gap behind its own predecessor, otherwise the later. For that, each batch is held back until the next
    is seen.
    """
    offset_limit = min(offset_limit, base_offset + INT32_MAX + 1)
    held: BatchInfo | None = None
    next_offset = base_offset  # behind all that were handed over
    good = 0  # bytes handed over
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
    """The two indexes of a segment, made anew as its batches go by."""

    __slots__ = ("_interval_bytes", "entry_at", "index", "max_timestamp", "offset_of_max", "position", "time_index")

    def __init__(self, base_offset: int, interval_bytes: int) -> None:
        self.index = OffsetIndex(base_offset)
        self.time_index = TimeIndex(base_offset)
        self.max_timestamp: i64 = NO_TIMESTAMP
        self.offset_of_max: i64 = base_offset
        self.position: i64 = 0
        """Behind the batches that were added."""
        self.entry_at: i64 = 0
        """Where the last entry points to."""
        self._interval_bytes: i64 = interval_bytes

    def add(self, size: i64, last_offset: i64, timestamp: i64) -> None:
        """The next batch; NO_TIMESTAMP of one without records, which compaction left."""
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
    """Build indexes from the file's first `size` bytes. What is right and wrong, and returned, is as in `scan_file` without CRC.

    A segment may have millions of batches, and readers wait: of each only a few numbers are looked at.
    """
    offset_limit: i64 = base_offset + INT32_MAX + 1
    next_offset: i64 = base_offset
    held_bytes: i64 = 0  # of the batch that is held back; none yet
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
            # A sign bit in one of the three is wrong in any case, and would leave the range of int64 here.
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
            if chunk[at + 35] <= 127 and _int32(chunk, at + 57):  # without records it was left by compaction
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
    """Step over batch headers, from one at `position` on, to the first batch that ends at or behind `offset` or beyond `limit`.

    The first read has `first_bytes`: who knows where the next batch begins need not read (and have the processor load) more.

    Returns its position, base offset, last offset and end. Where there is none the position is `size`, and the rest is that of
    the last batch. MalformedInput where bytes are no batch of the file's first `size`, or have an offset below `offset_min`.
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
            # A sign bit in one of the three is as wrong as another magic, and would leave the range of int64 here.
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
