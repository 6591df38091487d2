"""Frames on a stream: four bytes of length, big-endian, then as many bytes.

Owns: finding whole frames in what has arrived, and refusing lengths out of bounds. Never reads a socket and keeps no bytes: the
connection owns its receive buffer and asks how it is cut.
"""

from __future__ import annotations

from struct import Struct

from ottla.errors import MalformedInput
from ottla.types import Buffer

LENGTH_BYTES = 4

_LENGTH = Struct(">i")


def frame_size(buf: Buffer, position: int, end: int, frame_bytes_max: int) -> int:
    """The size of the frame that begins at `position`, without its length field; -1 while the length has not arrived whole."""
    if end - position < LENGTH_BYTES:
        return -1
    size: int = _LENGTH.unpack_from(buf, position)[0]
    if size < 0 or size > frame_bytes_max:
        raise MalformedInput(f"a frame of {size} bytes, allowed are 0 to {frame_bytes_max}")
    return size


def split_frames(buf: memoryview, frame_bytes_max: int) -> tuple[list[memoryview], int]:
    """The whole frames in `buf`, as slices without their lengths, and the position where the first incomplete one begins."""
    frames = []
    position = 0
    end = len(buf)
    while (size := frame_size(buf, position, end, frame_bytes_max)) >= 0:
        frame_end = position + LENGTH_BYTES + size
        if frame_end > end:
            break
        frames.append(buf[position + LENGTH_BYTES : frame_end])
        position = frame_end
    return frames, position


def frame_length(size: int) -> bytes:
    """The four bytes before a frame of `size` bytes."""
    return _LENGTH.pack(size)
