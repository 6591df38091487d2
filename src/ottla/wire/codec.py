"""From a message's definition to the two functions that read and write one of its versions.

Owns `decoder` and `encoder`, and `decode`/`encode` for a whole message. The functions are made on first use by executing the
source that `source` writes, and kept. Messages compiled by mypyc (`generate`) register theirs when they are imported. Read the
source of one with `print(*DecoderSource(ProduceRequest, 9).function(), sep="\n")`.

Invariants:
1. A decoder returns a value or raises MalformedInput, whatever the bytes.
2. A length or count is compared with the bytes that remain before anything is built from it; an element takes at least one byte.
   With `elements_max`, all arrays of a message together hold no more elements than that.
3. `bytes` and `records` are slices of the given buffer: they are not copied, and valid as long as it is.
4. An encoder appends parts that together are the message. File ranges and large buffers are parts of their own.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

from ottla.errors import MalformedInput
from ottla.ports import FileRange, Part
from ottla.types import Buffer
from ottla.wire.source import STRING_BYTES_MAX, TAGS_MAX, DecoderSource, EncoderSource, Source
from ottla.wire.varint import read_unsigned_varint, write_unsigned_varint

T = TypeVar("T")

Decoder = Callable[[Buffer, int], tuple[T, int]]
Encoder = Callable[[T, list[Part]], None]

JOIN_BYTES_MAX: Final = 4096
"""A buffer up to this size is copied into its surroundings rather than being a part of its own."""

REQUEST_ELEMENTS_MAX: Final = 1 << 18
"""Limit for all arrays of a client's request together. 100 MB of empty names would be 33 million elements: gigabytes of objects
that block the loop for half a minute. The largest clients name some ten thousand partitions."""

_decoders: dict[tuple[type, int, int | None], Any] = {}
_encoders: dict[tuple[type, int], Any] = {}


def decoder(cls: type[T], version: int, elements_max: int | None = None) -> Decoder[T]:
    """The function (buffer, position) -> (message, position after it) for one version; `elements_max` in all its arrays."""
    found: Decoder[T] | None = _decoders.get((cls, version, elements_max))
    if found is None:
        found = _decoders[cls, version, elements_max] = executed(DecoderSource(cls, version, elements_max))
    return found


def encoder(cls: type[T], version: int) -> Encoder[T]:
    """The function (message, parts) -> None that appends one version of a message to `parts`."""
    found: Encoder[T] | None = _encoders.get((cls, version))
    if found is None:
        found = _encoders[cls, version] = executed(EncoderSource(cls, version))
    return found


def register(decoders: Mapping[tuple[type, int], Any], encoders: Mapping[tuple[type, int], Any]) -> None:
    """Use compiled functions, by class and version; the decoders refuse more than REQUEST_ELEMENTS_MAX elements."""
    for (cls, version), function in decoders.items():
        _decoders[cls, version, REQUEST_ELEMENTS_MAX] = function
    _encoders.update(encoders)


def decode(cls: type[T], version: int, buf: Buffer) -> T:
    """A message that fills the whole buffer."""
    message, position = decoder(cls, version)(buf, 0)
    if position != len(buf):
        raise MalformedInput(f"{cls.__name__} v{version}: {len(buf) - position} bytes too many")
    return message


def encode(message: object, version: int) -> bytes:
    """A message as one string of bytes; file ranges are read. For tests, tools and records."""
    parts: list[Part] = []
    encoder(type(message), version)(message, parts)
    return b"".join(p.file.read(p.position, p.size) if isinstance(p, FileRange) else p for p in parts)


def parts_size(parts: list[Part]) -> int:
    """The bytes of all parts together."""
    size = 0
    for part in parts:
        # Nearly all parts are bytes, and that is the cheapest test.
        size += len(part) if isinstance(part, bytes) or not isinstance(part, FileRange) else part.size
    return size


def skip_tags(buf: memoryview, position: int) -> int:
    """Skip the tagged fields of a struct that defines none: a newer peer may send some."""
    end = len(buf)
    count, position = read_unsigned_varint(buf, position)
    if count > (end - position) // 2:
        raise MalformedInput("tagged fields: more than the rest of the message can hold")
    if count > TAGS_MAX:
        raise MalformedInput(f"tagged fields: more than {TAGS_MAX}")
    last = -1
    for _ in range(count):
        tag, position = read_unsigned_varint(buf, position)
        if tag <= last:
            raise MalformedInput("tagged fields: not in ascending order")
        last = tag
        size, position = read_unsigned_varint(buf, position)
        position += size
        if position > end:
            raise MalformedInput("tagged fields: longer than the rest of the message")
    return position


def string_too_long(size: int) -> None:
    raise ValueError(f"a string of {size} bytes: at most {STRING_BYTES_MAX} can be sent")


def executed(source: Source) -> Callable[..., Any]:
    """The function whose source this is."""
    lines = source.function()
    scope: dict[str, Any] = dict(_DECODER_SCOPE if isinstance(source, DecoderSource) else _ENCODER_SCOPE)
    for name, value in source.constants.items():
        if isinstance(value, struct.Struct):
            value = value.unpack_from if isinstance(source, DecoderSource) else value.pack
        scope[name] = value
    exec(compile("\n".join(lines), f"<{source.definition.name} v{source.version}>", "exec"), scope)
    made: Callable[..., Any] = scope["run"]
    return made


def _string_length(buf: memoryview, position: int) -> tuple[int, int]:
    """The length of a compact string plus one. A string has at most 32,767 bytes in every version."""
    size, position = read_unsigned_varint(buf, position)
    if size > STRING_BYTES_MAX + 1:
        raise MalformedInput(f"a string of {size - 1} bytes")
    return size, position


def _records_size(records: Part | list[Part]) -> int:
    return parts_size(records if isinstance(records, list) else [records])


def _put(parts: list[Part], out: bytearray, records: Part | list[Part], size: int) -> bytearray:
    """Add records whose length is written already. Returns the bytearray to continue with."""
    if isinstance(records, list):
        for part in records:
            out = _put(parts, out, part, _records_size(part))
        return out
    if not size:
        return out
    if size <= JOIN_BYTES_MAX and not isinstance(records, FileRange):
        out += records
        return out
    if out:
        parts.append(out)
    parts.append(records)
    return bytearray()


_DECODER_SCOPE: Final = {
    "MalformedInput": MalformedInput,
    "struct_error": struct.error,
    "unpack": struct.unpack,
    "varint": read_unsigned_varint,
    "string_length": _string_length,
    "skip_tags": skip_tags,
}
_ENCODER_SCOPE: Final = {
    "pack_array": struct.pack,
    "write_varint": write_unsigned_varint,
    "string_too_long": string_too_long,
    "records_size": _records_size,
    "put": _put,
}
