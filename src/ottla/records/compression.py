"""The four compression codecs of record batches, compatible with the Java clients and librdkafka.

1. `decompress` returns at most `limit_bytes` or raises. Its memory is bounded by the limit, whatever the input claims.
2. Invalid data is `MalformedInput`, data above the limit is `TooLarge`; no other exception is raised.
3. It accepts what Kafka accepts: several gzip members or zstd frames in a row, one lz4 frame of independent blocks, snappy raw or
   in blocks with the header of snappy-java.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from typing import Final

import cramjam

from ottla.errors import MalformedInput
from ottla.types import Buffer

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = ("none", "gzip", "snappy", "lz4", "zstd")

GZIP_LEVEL_DEFAULT: Final = -1
LZ4_LEVEL_DEFAULT: Final = 9
ZSTD_LEVEL_DEFAULT: Final = 3

DECOMPRESSED_BYTES_MAX: Final = 256 * 1024 * 1024
"""For batches from the log, which were checked against their limit when they were produced."""

_SNAPPY_HEADER: Final = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
_SNAPPY_MAGIC: Final = b"\x82SNAPPY\x00"
_SNAPPY_BLOCK_BYTES: Final = 32 * 1024

_GZIP_MAGIC: Final = b"\x1f\x8b\x08"
_GZIP_STEP_BYTES: Final = 4096
_GZIP_PIECE_BYTES: Final = 4 << 20
"""Decompressed in one piece. Joining more would be one long copy, during which no other thread runs."""

_LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
_LZ4_STORED_BIT: Final = 0x80000000
_LZ4_RATIO_MAX: Final = 255

_ZSTD_MAGIC: Final = 0xFD2FB528
_ZSTD_SKIPPABLE: Final = 0x184D2A50
_ZSTD_BLOCK_BYTES_MAX: Final = 128 * 1024
_ZSTD_WINDOW_BYTES_MAX: Final = 128 * 1024 * 1024
"""The default limit of zstd's streaming decoder, which Java uses."""

_OUT_OF_SPACE: Final = "failed to write whole buffer"
"""cramjam's message if the output does not fit."""

_UINT32: Final = struct.Struct("<I")
_UINT64: Final = struct.Struct("<Q")
_INT32_BE: Final = struct.Struct(">i")


class TooLarge(Exception):
    """The records decompress to more than the limit."""

    def __init__(self, limit_bytes: int) -> None:
        super().__init__(f"the records decompress to more than {limit_bytes} bytes")
        self.limit_bytes = limit_bytes


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress a section of records. `level` None is Kafka's default for the codec."""
    if codec == NONE:
        return bytes(data)
    if codec == GZIP:
        packer = zlib.compressobj(GZIP_LEVEL_DEFAULT if level is None else level, zlib.DEFLATED, 31)
        return packer.compress(data) + packer.flush()
    if codec == SNAPPY:
        return _snappy_compress(data)
    if codec == LZ4:
        # Kafka's default level, 9, is the fast compressor; any other is the high-compression one
        fast = level is None or level == LZ4_LEVEL_DEFAULT
        frame = cramjam.lz4.Compressor(level=1 if fast else level, content_checksum=False, block_linked=False)
        frame.compress(bytes(data))
        return bytes(frame.finish())
    if codec == ZSTD:
        # as a stream, like Java: with a known size zstd uses smaller tables, and compresses 200 KB an eighth worse
        stream = cramjam.zstd.Compressor(level=ZSTD_LEVEL_DEFAULT if level is None else level)
        stream.compress(bytes(data))
        return bytes(stream.finish())
    raise ValueError(f"no codec {codec}")


def decompress(codec: int, data: Buffer, limit_bytes: int, by_claim: bool = False) -> bytes:
    """Decompress a section of records into at most `limit_bytes`.

    `by_claim`: raise `TooLarge` before decompression if the header allows more than the limit, even if the data has less.
    """
    if codec == NONE:
        if len(data) > limit_bytes:
            raise TooLarge(limit_bytes)
        return bytes(data)
    try:
        if codec == GZIP:
            if by_claim and len(data) >= 4 and int(_UINT32.unpack_from(data, len(data) - 4)[0]) > limit_bytes:
                raise TooLarge(limit_bytes)
            return _gzip_decompress(data, limit_bytes)
        if codec == SNAPPY:
            return _snappy_decompress(data, limit_bytes)
        if codec == LZ4:
            return _lz4_decompress(data, limit_bytes, by_claim)
        if codec == ZSTD:
            return _zstd_decompress(data, limit_bytes, by_claim)
    except (cramjam.DecompressionError, zlib.error, struct.error, IndexError) as error:
        raise MalformedInput(f"{CODEC_NAMES[codec]} data cannot be decompressed: {error}") from None
    raise MalformedInput(f"no codec {codec}")


def _gzip_decompress(data: Buffer, limit_bytes: int) -> bytes:
    view = memoryview(data)
    pieces: list[bytes] = []
    size = 0
    position = 0
    end = len(data)
    # one piece of one member is nearly always all; the rest goes in steps, because unused input is copied
    step = end
    while True:
        member = zlib.decompressobj(31)
        while not member.eof:
            given = view[position : position + step]
            # a limit of 0 would mean none: ask for one byte more than allowed, and refuse it
            piece = member.decompress(given, min(limit_bytes - size + 1, _GZIP_PIECE_BYTES))
            if not piece and not member.eof and position == end:
                raise MalformedInput("gzip data ends too early")
            position += len(given) - len(member.unused_data) - len(member.unconsumed_tail)
            size += len(piece)
            if size > limit_bytes:
                raise TooLarge(limit_bytes)
            pieces.append(piece)
            step = _GZIP_STEP_BYTES
        # like Java: read another member, and ignore anything else after the last one
        if bytes(view[position : position + len(_GZIP_MAGIC)]) != _GZIP_MAGIC:
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _snappy_compress(data: Buffer) -> bytes:
    parts: list[bytes] = [_SNAPPY_HEADER]
    view = memoryview(data)
    for start in range(0, len(view), _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _SNAPPY_BLOCK_BYTES]))
        parts.append(_INT32_BE.pack(len(block)))
        parts.append(block)
    return b"".join(parts)


def _snappy_decompress(data: Buffer, limit_bytes: int) -> bytes:
    blocks: list[tuple[int, int, int]] = []
    if len(data) < len(_SNAPPY_HEADER) or bytes(data[: len(_SNAPPY_MAGIC)]) != _SNAPPY_MAGIC:
        blocks.append((0, len(data), _snappy_block_size(data)))
    else:
        _find_snappy_blocks(data, blocks)
    total = 0
    for _, _, size in blocks:
        total += size
    if total > limit_bytes:
        raise TooLarge(limit_bytes)
    packed = memoryview(data)
    out = bytearray(total)
    unpacked = memoryview(out)
    filled = 0
    for position, length, size in blocks:
        cramjam.snappy.decompress_raw_into(packed[position : position + length], unpacked[filled : filled + size])
        filled += size
    return bytes(out)


def _find_snappy_blocks(data: Buffer, blocks: list[tuple[int, int, int]]) -> None:
    """Position, length and decompressed size of each block of snappy-java's framing."""
    packed = memoryview(data)
    position = 0
    end = len(data)
    # like Java: ignore fewer than four bytes at the end
    while end - position >= 4:
        if bytes(packed[position : position + 4]) == _SNAPPY_MAGIC[:4]:
            # joined streams repeat the header
            if bytes(packed[position : position + 8]) != _SNAPPY_MAGIC or end - position < len(_SNAPPY_HEADER):
                raise MalformedInput("snappy header is invalid")
            version: int = _INT32_BE.unpack_from(data, position + 8)[0]
            if version < 1:
                raise MalformedInput(f"snappy framing of version {version}")
            position += len(_SNAPPY_HEADER)
            continue
        length: int = _INT32_BE.unpack_from(data, position)[0]
        position += 4
        if length < 0 or length > end - position:
            raise MalformedInput("snappy block is longer than its stream")
        if length > 0:
            blocks.append((position, length, _snappy_block_size(packed[position : position + length])))
        position += length


def _snappy_block_size(block: Buffer) -> int:
    size: int = cramjam.snappy.decompress_raw_len(block)
    # an element of the format expands two bytes to at most 64
    if size > 64 * len(block):
        raise MalformedInput("snappy block claims an impossible size")
    return size


def _lz4_decompress(data: Buffer, limit_bytes: int, by_claim: bool) -> bytes:
    frame_end, size_max = _lz4_frame(data)
    return _unpack_into(cramjam.lz4.decompress_into, memoryview(data)[:frame_end], size_max, limit_bytes, by_claim)


def _lz4_frame(data: Buffer) -> tuple[int, int]:
    """The end of the first frame and its maximal decompressed size. Like Java, ignore what follows."""
    if len(data) < 7 or bytes(data[:4]) != _LZ4_MAGIC:
        raise MalformedInput("lz4 data does not begin with a frame")
    flags = data[4]
    descriptor = data[5]
    if flags >> 6 != 1 or flags & 0x03:
        raise MalformedInput(f"lz4 frame flags {flags:#04x}")
    if not flags & 0x20:
        raise MalformedInput("lz4 blocks depend on each other")
    size_code = descriptor >> 4
    if descriptor & 0x8F or size_code < 4:
        raise MalformedInput(f"lz4 block descriptor {descriptor:#04x}")
    block_bytes_max = 1 << (2 * size_code + 8)
    block_checksum = 4 if flags & 0x10 else 0
    position = 6 + (8 if flags & 0x08 else 0) + 1
    size_max = 0
    while True:
        word: int = _UINT32.unpack_from(data, position)[0]
        position += 4
        length = word & ~_LZ4_STORED_BIT
        if length == 0:
            break
        if length > block_bytes_max:
            raise MalformedInput("lz4 block is larger than its frame allows")
        size_max += length if word & _LZ4_STORED_BIT else min(block_bytes_max, length * _LZ4_RATIO_MAX)
        position += length + block_checksum
    position += 4 if flags & 0x04 else 0
    if position > len(data):
        raise MalformedInput("lz4 frame ends too early")
    return position, size_max


def _zstd_decompress(data: Buffer, limit_bytes: int, by_claim: bool) -> bytes:
    return _unpack_into(cramjam.zstd.decompress_into, data, _zstd_size_max(data), limit_bytes, by_claim)


def _zstd_size_max(data: Buffer) -> int:
    """The maximal decompressed size of all frames, by their headers or their blocks."""
    total = 0
    position = 0
    end = len(data)
    while position < end:
        magic: int = _UINT32.unpack_from(data, position)[0]
        position += 4
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
            position += 4 + int(_UINT32.unpack_from(data, position)[0])
            continue
        if magic != _ZSTD_MAGIC:
            raise MalformedInput("zstd data does not begin with a frame")
        flags = data[position]
        position += 1
        single_segment = flags & 0x20 != 0
        if flags & 0x08:
            raise MalformedInput("zstd frame uses a reserved bit")
        window = 0
        if not single_segment:
            byte = data[position]
            position += 1
            base = 1 << (10 + (byte >> 3))
            window = base + (base >> 3) * (byte & 7)
        position += (0, 1, 2, 4)[flags & 3]
        content = -1
        size_code = flags >> 6
        if size_code == 0 and single_segment:
            content = data[position]
            position += 1
        elif size_code == 1:
            content = data[position] + 256 * data[position + 1] + 256
            position += 2
        elif size_code == 2:
            content = _UINT32.unpack_from(data, position)[0]
            position += 4
        elif size_code == 3:
            content = _UINT64.unpack_from(data, position)[0]
            position += 8
        if single_segment:
            window = content
        if window > _ZSTD_WINDOW_BYTES_MAX:
            raise MalformedInput(f"zstd frame wants a window of {window} bytes")
        blocks = 0
        while True:
            header = data[position] | data[position + 1] << 8 | data[position + 2] << 16
            position += 3
            size = header >> 3
            kind = header >> 1 & 3
            if kind == 3:
                raise MalformedInput("zstd block of a reserved kind")
            # raw and RLE blocks have their decompressed size, compressed ones only their compressed size
            blocks += size if kind < 2 else _ZSTD_BLOCK_BYTES_MAX
            position += 1 if kind == 1 else size
            if header & 1:
                break
        position += 4 if flags & 0x04 else 0
        total += blocks if content < 0 else min(blocks, content)
    if position > end:
        raise MalformedInput("zstd frame ends too early")
    return total


def _unpack_into(
    unpack: Callable[[Buffer, bytearray], int], data: Buffer, size_max: int, limit_bytes: int, by_claim: bool
) -> bytes:
    """Decompress into memory of a bounded size; fresh memory costs nothing until it is written."""
    if size_max <= limit_bytes:
        out = bytearray(size_max)
        size = unpack(data, out)
    elif by_claim:
        raise TooLarge(limit_bytes)
    else:
        out = bytearray(limit_bytes + 1)
        try:
            size = unpack(data, out)
        except cramjam.DecompressionError as error:
            if _OUT_OF_SPACE in str(error):
                raise TooLarge(limit_bytes) from None
            raise
        if size > limit_bytes:
            raise TooLarge(limit_bytes)
    return bytes(memoryview(out)[:size])
