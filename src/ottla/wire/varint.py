"""Variable-length integers: seven bits a byte, lowest first; signed ones are zig-zag encoded.

Owns writing them to a bytearray, and reading those of messages at a position of a buffer. Those of records are read in
`records.walk`. Compiled.

Invariants:
1. A read returns (value, position after it) or raises MalformedInput; it never reads beyond the buffer.
2. A 32-bit number takes at most 5 bytes, a 64-bit one at most 10; a value that does not fit is refused. Padding inside that
   limit (a zero written as 80 00) is accepted, as Kafka accepts it.
"""

from __future__ import annotations

from ottla.errors import MalformedInput
from ottla.types import Buffer


def read_unsigned_varint(buf: Buffer, position: int) -> tuple[int, int]:
    """An unsigned number of 32 bits: lengths, counts and tags of the flexible versions."""
    end = len(buf)
    value = 0
    shift = 0
    while position < end:
        byte = buf[position]
        position += 1
        if shift == 28 and byte > 0x0F:
            raise MalformedInput("a varint does not fit 32 bits")
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, position
        shift += 7
    raise MalformedInput("a varint is cut short")


def write_unsigned_varint(out: bytearray, value: int) -> None:
    if value < 0 or value > 0xFFFFFFFF:
        raise ValueError(f"{value} is no unsigned number of 32 bits")
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def write_unsigned_varlong(out: bytearray, value: int) -> None:
    if value < 0 or value > 0xFFFFFFFFFFFFFFFF:
        raise ValueError(f"{value} is no unsigned number of 64 bits")
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def write_varint(out: bytearray, value: int) -> None:
    if value < -0x80000000 or value > 0x7FFFFFFF:
        raise ValueError(f"{value} is no signed number of 32 bits")
    write_unsigned_varint(out, (value << 1) ^ (value >> 31))


def write_varlong(out: bytearray, value: int) -> None:
    if value < -0x8000000000000000 or value > 0x7FFFFFFFFFFFFFFF:
        raise ValueError(f"{value} is no signed number of 64 bits")
    write_unsigned_varlong(out, (value << 1) ^ (value >> 63))
