"""What compiled decoders and encoders call: variable-length integers, tagged fields and records, on `bytes` and `BytesWriter`.

The counterparts in `codec` and `varint` do the same on memoryviews and bytearrays. Compiled; only compiled modules import it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter

from ottla.errors import MalformedInput
from ottla.ports import FileRange, Part

if TYPE_CHECKING:
    from mypy_extensions import i64

_JOIN_BYTES_MAX: Final = 4096
_STRING_BYTES_MAX: Final = 32767
_TAGS_MAX: Final = 1024


class Unset:
    """Not given, where None is a value."""


UNSET: Final = Unset()


def varint(data: bytes, at: i64) -> tuple[i64, i64]:
    """An unsigned number of 32 bits, and the position after it. IndexError where the bytes end."""
    value: i64 = 0
    shift: i64 = 0
    while True:
        byte: i64 = data[at]
        at += 1
        if shift == 28 and byte > 0x0F:
            raise MalformedInput("a varint does not fit 32 bits")
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7


def string_length(data: bytes, at: i64) -> tuple[i64, i64]:
    """The length of a compact string plus one, and the position after it."""
    size, at = varint(data, at)
    if size > _STRING_BYTES_MAX + 1:
        raise MalformedInput(f"a string of {size - 1} bytes")
    return size, at


def skip_tags(data: bytes, at: i64, end: i64) -> i64:
    """Skip the tagged fields of a struct that defines none. `end` is where the message ends, which may be behind `data`."""
    count, at = varint(data, at)
    if count > (end - at) // 2:
        raise MalformedInput("tagged fields: more than the rest of the message can hold")
    if count > _TAGS_MAX:
        raise MalformedInput(f"tagged fields: more than {_TAGS_MAX}")
    last: i64 = -1
    while count > 0:
        count -= 1
        tag, at = varint(data, at)
        if tag <= last:
            raise MalformedInput("tagged fields: not in ascending order")
        last = tag
        size, at = varint(data, at)
        at += size
        if at > end:
            raise MalformedInput("tagged fields: longer than the rest of the message")
    return at


def write_varint(out: BytesWriter, value: i64) -> None:
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def write_uuid(out: BytesWriter, value: bytes) -> None:
    if len(value) != 16:
        raise ValueError(f"a uuid of {len(value)} bytes")
    out.write(value)


def records_size(records: Part | list[Part]) -> int:
    if isinstance(records, FileRange):
        return records.size
    if isinstance(records, list):
        size = 0
        for part in records:
            size += records_size(part)
        return size
    return len(records)


def put(parts: list[Part], out: BytesWriter, records: Part | list[Part], size: i64) -> BytesWriter:
    """Add records whose length is written already. Returns the writer to continue with."""
    if isinstance(records, list):
        for part in records:
            out = put(parts, out, part, records_size(part))
        return out
    if size == 0:
        return out
    if size <= _JOIN_BYTES_MAX and not isinstance(records, FileRange):
        out.write(bytes(records))
        return out
    if len(out) > 0:
        parts.append(out.getvalue())
    parts.append(records)
    return BytesWriter()
