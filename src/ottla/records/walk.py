"""The loop over the records of a batch, and the layout of one record.

Works on decompressed records as `bytes`: compiled, an index into `bytes` is one comparison and one load. Records in other memory
are copied first. Varints are read in place by generated code (ADR 8).

1. A valid record ends exactly where its length says, inside the section. Anything else is MalformedInput.
2. A varint that does not fit its type is MalformedInput.
3. Nothing is allocated per valid record.
4. Interpreted and compiled code do the same: no arithmetic leaves the range of int64.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from ottla.errors import MalformedInput

if TYPE_CHECKING:
    from mypy_extensions import i64

INT64_MIN: Final = -(2**63)
INT64_MAX: Final = 2**63 - 1

RECORD_BYTES_MIN: Final = 7
"""Length, attributes, timestamp, offset, key length, value length, header count: one byte each at least."""
PIECE_BYTES: Final = 64 << 10
"""A large section is copied in pieces of this size, which stay in the processor's cache."""


class Walk:
    """The result of a walk over all records."""

    def __init__(self) -> None:
        self.records: i64 = 0
        self.max_timestamp_delta: i64 = INT64_MIN
        self.max_index: i64 = 0
        """The index of the first record with the largest timestamp."""
        self.null_keys: i64 = 0
        self.out_of_range: i64 = 0
        """The number of records with a timestamp delta outside of the allowed range."""


def varint_at(data: bytes, position: i64) -> i64:
    """The unsigned varint of up to 32 bits at `position`, and the bytes it takes: value * 8 + bytes."""
    b: i64 = data[position]
    if b < 128:
        return b * 8 + 1
    value: i64 = b & 127
    b = data[position + 1]
    if b < 128:
        return (value | b << 7) * 8 + 2
    value |= (b & 127) << 7
    b = data[position + 2]
    if b < 128:
        return (value | b << 14) * 8 + 3
    value |= (b & 127) << 14
    b = data[position + 3]
    if b < 128:
        return (value | b << 21) * 8 + 4
    value |= (b & 127) << 21
    b = data[position + 4]
    if b > 15:
        raise MalformedInput("a varint does not fit 32 bits")
    return (value | b << 28) * 8 + 5


def varlong_end(data: bytes, position: i64) -> i64:
    """The position after the varlong at `position`."""
    end: i64 = position
    while data[end] >= 128:
        end += 1
        if end - position == 9:
            if data[end] > 1:
                raise MalformedInput("a varlong does not fit 64 bits")
            break
    return end + 1


def varlong_at(data: bytes, position: i64) -> i64:
    """The zigzag varlong at `position`. Its 64th bit is added apart: int64 is the widest native integer."""
    low: i64 = 0
    shift: i64 = 0
    top: i64 = 0
    b: i64 = data[position]
    while b >= 128:
        low |= (b & 127) << shift
        shift += 7
        position += 1
        b = data[position]
        if shift == 63:
            if b > 1:
                raise MalformedInput("a varlong does not fit 64 bits")
            top = b
            b = 0
            break
    if shift < 63:
        low |= b << shift
    half: i64 = low >> 1 | top << 62
    if low & 1 != 0:
        return ~half
    return half


def walk(data: bytes, count: i64, delta_min: i64, delta_max: i64) -> Walk:
    """Check the `count` records in `data`, which must have the offset deltas 0, 1, 2 ...

    `delta_min` and `delta_max` are the allowed timestamp deltas.
    """
    found = Walk()
    _check_count(count, len(data))
    _walk_on(found, data, 0, count, delta_min, delta_max)
    if count == 0:
        found.max_timestamp_delta = 0
    return found


def walk_view(
    view: memoryview, count: i64, delta_min: i64, delta_max: i64, after_piece: Callable[[], None] | None = None
) -> Walk:
    """As `walk`, for records in a view. `after_piece` is called after each piece of a large section."""
    size: i64 = len(view)
    piece_bytes: i64 = PIECE_BYTES
    if size <= piece_bytes or count * (PIECE_BYTES // 8) < size:  # large records would be copied twice
        return walk(bytes(view), count, delta_min, delta_max)
    found = Walk()
    _check_count(count, size)
    position: i64 = 0
    while position < size:
        piece = bytes(view[position : position + piece_bytes])
        more: i64 = size - position - len(piece)
        done: i64 = _walk_on(found, piece, more, count, delta_min, delta_max)
        if done == 0:
            piece_bytes *= 2  # the record does not fit
        position += done
        if after_piece is not None:
            after_piece()
    return found


def _check_count(count: i64, size: i64) -> None:
    if count < 0:
        raise MalformedInput(f"a batch claims {count} records")
    if count * RECORD_BYTES_MIN > size:
        raise MalformedInput(f"a batch claims {count} records in {size} bytes")


def _walk_on(found: Walk, data: bytes, more: i64, count: i64, delta_min: i64, delta_max: i64) -> i64:
    """Check the next records of a section: `data` begins with one, and `more` bytes of the section follow it.

    Returns the position of the first record that is incomplete in `data`; for the last piece its end.
    """
    end: i64 = len(data)
    position: i64 = 0
    start: i64 = 0
    index: i64 = found.records
    largest: i64 = found.max_timestamp_delta
    largest_at: i64 = found.max_index
    null_keys: i64 = 0
    out_of_range: i64 = 0
    b: i64 = 0
    n: i64 = 0
    packed: i64 = 0
    delta: i64 = 0
    record_end: i64 = 0
    headers: i64 = 0
    try:
        while index < count:
            start = position
            record_end = -1
            # length
            # varint n: generated by tests/unit/records/inline_varint.py, do not edit
            b = data[position]
            position += 1
            n = b
            if b >= 128:
                b = data[position]
                if b < 128:
                    position += 1
                    n += (b << 7) - 128
                else:
                    packed = varint_at(data, position - 1)
                    n = packed >> 3
                    position += (packed & 7) - 1
            # end
            if n & 1 != 0:
                raise MalformedInput(f"record {index} has a negative length")
            record_end = position + (n >> 1)
            if record_end > end:
                if record_end > end + more:
                    raise MalformedInput(f"record {index} is longer than its batch")
                break
            # attributes: unused
            position += 1
            # timestamp delta
            # varlong delta: generated by tests/unit/records/inline_varint.py, do not edit
            b = data[position]
            if b < 128:
                position += 1
                delta = b >> 1
                if b & 1 != 0:
                    delta = ~delta
            elif data[position + 1] < 128:
                b += (data[position + 1] << 7) - 128
                position += 2
                delta = b >> 1
                if b & 1 != 0:
                    delta = ~delta
            else:
                delta = varlong_at(data, position)
                position = varlong_end(data, position)
            # end
            if delta > largest:
                largest = delta
                largest_at = index
            if delta < delta_min or delta > delta_max:
                out_of_range += 1
            # offset delta
            # varint n: generated by tests/unit/records/inline_varint.py, do not edit
            b = data[position]
            position += 1
            n = b
            if b >= 128:
                b = data[position]
                if b < 128:
                    position += 1
                    n += (b << 7) - 128
                else:
                    packed = varint_at(data, position - 1)
                    n = packed >> 3
                    position += (packed & 7) - 1
            # end
            if n != index * 2:
                raise MalformedInput(f"record {index} does not have the offset delta {index}")
            # key
            # varint n: generated by tests/unit/records/inline_varint.py, do not edit
            b = data[position]
            position += 1
            n = b
            if b >= 128:
                b = data[position]
                if b < 128:
                    position += 1
                    n += (b << 7) - 128
                else:
                    packed = varint_at(data, position - 1)
                    n = packed >> 3
                    position += (packed & 7) - 1
            # end
            if n & 1 != 0:
                null_keys += 1
            else:
                position += n >> 1
            # value
            # varint n: generated by tests/unit/records/inline_varint.py, do not edit
            b = data[position]
            position += 1
            n = b
            if b >= 128:
                b = data[position]
                if b < 128:
                    position += 1
                    n += (b << 7) - 128
                else:
                    packed = varint_at(data, position - 1)
                    n = packed >> 3
                    position += (packed & 7) - 1
            # end
            if n & 1 == 0:
                position += n >> 1
            # headers: most records have none
            headers = data[position]
            position += 1
            if headers != 0:
                position = skip_headers(data, position - 1, record_end, index)
            if position != record_end:
                raise MalformedInput(f"record {index} does not end where its length says")
            index += 1
        else:
            start = position
            if position != end + more:
                raise MalformedInput(f"{end + more - position} bytes after the last of {count} records")
    except IndexError:
        if more == 0 or record_end >= 0:
            raise MalformedInput(f"record {index} runs past the end of its batch") from None
        # otherwise its length continues in the next piece
    found.records = index
    found.max_timestamp_delta = largest
    found.max_index = largest_at
    found.null_keys += null_keys
    found.out_of_range += out_of_range
    return start


def skip_headers(data: bytes, position: i64, record_end: i64, index: i64) -> i64:
    """The position after the headers whose count is at `position`."""
    packed: i64 = varint_at(data, position)
    n: i64 = packed >> 3
    position += packed & 7
    if n & 1 != 0:
        raise MalformedInput(f"record {index} has a negative number of headers")
    count: i64 = n >> 1
    # two lengths each; this also bounds the loop
    if count * 2 > record_end - position:
        raise MalformedInput(f"record {index} claims {count} headers, more than fit into it")
    seen: i64 = 0
    while seen < count:
        packed = varint_at(data, position)
        n = packed >> 3
        if n & 1 != 0:
            raise MalformedInput(f"record {index} has a header without a key")
        position += (packed & 7) + (n >> 1)
        packed = varint_at(data, position)
        n = packed >> 3
        position += packed & 7
        if n & 1 == 0:
            position += n >> 1
        seen += 1
    return position


def next_record(data: bytes, position: i64) -> i64:
    """The position after the record at `position`, by its length alone. For sections that were checked before."""
    packed: i64 = varint_at(data, position)
    n: i64 = packed >> 3
    if n & 1 != 0:
        raise MalformedInput("a record has a negative length")
    after: i64 = position + (packed & 7) + (n >> 1)
    if after > len(data):
        raise MalformedInput("a record is longer than its batch")
    return after


def timestamp_delta_at(data: bytes, position: i64) -> i64:
    """The timestamp delta of the record at `position`."""
    packed: i64 = varint_at(data, position)
    return varlong_at(data, position + (packed & 7) + 1)


def offset_delta_at(data: bytes, position: i64) -> i64:
    """The offset delta of the record at `position`. Stored batches may have gaps, from compaction."""
    packed: i64 = varint_at(data, position)
    at: i64 = varlong_end(data, position + (packed & 7) + 1)
    n: i64 = varint_at(data, at) >> 3
    if n & 1 != 0:
        raise MalformedInput("a record has a negative offset delta")
    return n >> 1


def has_key_at(data: bytes, position: i64) -> bool:
    """Whether the record at `position` has a key."""
    packed: i64 = varint_at(data, position)
    at: i64 = varlong_end(data, position + (packed & 7) + 1)
    at += varint_at(data, at) & 7
    n: i64 = varint_at(data, at) >> 3
    return n & 1 == 0
