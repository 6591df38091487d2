"""How a record names its schema: a magic byte and an id before the payload, or a GUID in a header.

Byte 0 is the magic byte 0, then comes the schema's id in four bytes, big endian, then the payload. Protobuf has message
indexes before the payload: the path of the message in its file as zigzag varints, the count first; the path [0], the first
message, is the one byte 0.

Clients of Confluent 8 may write the byte 1 and the 16 bytes of a GUID, and Protobuf's message indexes, into a header instead.
`whole` puts them before the value, where they are read as an id is.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterable, Sequence
from typing import NamedTuple

KEY_HEADER = "__key_schema_id"
VALUE_HEADER = "__value_schema_id"

_ID_MAGIC = 0
_GUID_MAGIC = 1
_PREFIX = struct.Struct(">BI")
PREFIX_BYTES = _PREFIX.size
GUID_BYTES = 17
# No message lies deeper than a schema may nest.
_INDEXES_MAX = 100


class NotFramed(ValueError):
    """The bytes do not begin as those of a record with a schema. The text says what is there instead."""


SchemaName = int | uuid.UUID
"""The id of a schema, or its GUID."""


class Framed(NamedTuple):
    """The id or GUID of a record's schema and where its payload begins."""

    schema_id: SchemaName
    payload_start: int


def read_id(data: bytes) -> Framed:
    """The schema id, or GUID, at the start of a value or key."""
    if len(data) < PREFIX_BYTES:
        raise NotFramed(f"{len(data)} bytes are too few for a schema id, which takes {PREFIX_BYTES}")
    magic, schema_id = _PREFIX.unpack_from(data)
    if is_guid(data):
        return Framed(uuid.UUID(bytes=bytes(data[1:GUID_BYTES])), GUID_BYTES)
    if magic != _ID_MAGIC:
        raise NotFramed(f"the first byte is {magic}, not the magic byte 0 of a schema id")
    return Framed(schema_id, PREFIX_BYTES)


def write_id(schema_id: int) -> bytes:
    """The five bytes before a payload."""
    return _PREFIX.pack(_ID_MAGIC, schema_id)


def prefix_of(data: bytes) -> bytes:
    """The bytes that name the schema, or the first few if none do."""
    return data[: GUID_BYTES if is_guid(data) else PREFIX_BYTES]


def names_schema(data: bytes | None) -> bool:
    """Whether bytes may name a schema."""
    return data is not None and len(data) >= PREFIX_BYTES and (data[0] == _ID_MAGIC or is_guid(data))


def is_guid(data: bytes) -> bool:
    return len(data) >= GUID_BYTES and data[0] == _GUID_MAGIC


def whole(data: bytes | None, headers: Iterable[tuple[str, bytes | None]], *, key: bool) -> bytes | None:
    """A key or value with what a header tells of its schema before it. Of several such headers the last counts."""
    if data is None or not headers:
        return data
    wanted = KEY_HEADER if key else VALUE_HEADER
    found = [value for name, value in headers if name == wanted and value]
    return (found[-1] or b"") + data if found else data


def write_guid(guid: uuid.UUID) -> bytes:
    """The value of a header that names a schema by its GUID."""
    return bytes([_GUID_MAGIC]) + guid.bytes


def read_indexes(data: bytes, start: int, *, zigzag: bool = True) -> tuple[tuple[int, ...], int]:
    """The message indexes of a Protobuf record, and where its payload begins.

    `zigzag` is false for records of old .NET clients, which wrote plain varints.
    """
    count, position = _read_varint(data, start, zigzag)
    if count == 0:
        return (0,), position
    if not 0 < count <= _INDEXES_MAX:
        raise NotFramed(f"{count} message indexes are not between 1 and {_INDEXES_MAX}")
    indexes = []
    for _ in range(count):
        index, position = _read_varint(data, position, zigzag)
        if index < 0:
            raise NotFramed(f"message index {index} is negative")
        indexes.append(index)
    return tuple(indexes), position


def write_indexes(indexes: Sequence[int]) -> bytes:
    """The message indexes as Confluent's clients write them; [0] is one byte."""
    if not indexes:
        raise ValueError("a message has at least one index")
    if list(indexes) == [0]:
        return b"\0"
    return b"".join(_varint(each) for each in [len(indexes), *indexes])


def _varint(value: int) -> bytes:
    number = value << 1
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def _read_varint(data: bytes, position: int, zigzag: bool) -> tuple[int, int]:
    number = shift = 0
    while True:
        if position >= len(data):
            raise NotFramed("the bytes end within the message indexes")
        byte = data[position]
        position += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
        if shift > 28:
            raise NotFramed("a message index has more than five bytes")
    return ((number >> 1) ^ -(number & 1) if zigzag else number), position
