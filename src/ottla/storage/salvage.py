"""Finds the intact batches of a damaged `.log` file.

A batch is intact if it is complete, its CRC is right, and its offsets follow those of the intact batches before it. Never writes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final

from ottla.records.batch import ATTRIBUTES_AT, LOG_OVERHEAD, MAGIC_AT, MAGIC_V2, RECORDS_AT, BatchInfo, header_at
from ottla.records.crc import crc32c
from ottla.storage.config import INT64_MAX
from ottla.storage.offset_index import INT32_MAX

_WINDOW_BYTES: Final = 256 << 10
"""A worker that searches one holds the interpreter for milliseconds at most."""


Read = Callable[[int, int], bytes]
"""Up to so many bytes from a position on; fewer only at the end of the file."""


def intact_batches(read: Read, size: int, position: int, next_offset: int, offset_limit: int = INT64_MAX) -> Iterator[BatchInfo]:
    """The intact batches of a file of `size` bytes from a position on, with offsets in [next_offset, offset_limit). Skips what
    is between them."""
    while True:
        info = _batch_at(read, size, position, next_offset, offset_limit)
        if info is None:
            info = _find_batch(read, size, position, next_offset, offset_limit)
        if info is None:
            return
        position = info.end
        if not _is_displaced(read, size, info, next_offset, offset_limit):
            yield info
            next_offset = info.next_offset


def _find_batch(read: Read, size: int, position: int, next_offset: int, offset_limit: int) -> BatchInfo | None:
    """The next intact batch behind the damage at a position. Mostly the length of the damaged batch is right."""
    head = read(position, LOG_OVERHEAD)
    length = int.from_bytes(head[8:], "big", signed=True) if len(head) == LOG_OVERHEAD else 0
    if length > 0:
        info = _batch_at(read, size, position + LOG_OVERHEAD + length, next_offset, offset_limit)
        if info is not None:
            return info
    header = _header_pattern(next_offset, min(next_offset + INT32_MAX, offset_limit - 1))
    position += 1
    while size - position >= RECORDS_AT:
        for match in header.finditer(read(position, _WINDOW_BYTES + MAGIC_AT)):
            info = _batch_at(read, size, position + match.start(), next_offset, offset_limit)
            if info is not None:
                return info
        position += _WINDOW_BYTES
    return None


def _is_displaced(read: Read, size: int, info: BatchInfo, next_offset: int, offset_limit: int) -> bool:
    """Whether the base offset is wrong, which the CRC does not cover: a gap is before it, and the next batch is in that gap."""
    if info.base_offset == next_offset:
        return False
    follower = _batch_at(read, size, info.end, next_offset, offset_limit)
    return follower is not None and follower.base_offset <= info.last_offset


def _header_pattern(first_offset: int, last_offset: int) -> re.Pattern[bytes]:
    """Matches where a base offset of that range (at most 2^31), a positive length and the magic byte may stand."""
    high_words = {first_offset >> 32, last_offset >> 32}
    starts = b"|".join(re.escape(word.to_bytes(4, "big")) for word in sorted(high_words))
    return re.compile(rb"(?=(?:%s).{4}[\x00-\x7f].{7}\x02)" % starts, re.DOTALL)


def _batch_at(read: Read, size: int, position: int, next_offset: int, offset_limit: int) -> BatchInfo | None:
    head = read(position, min(RECORDS_AT, size - position)) if size > position else b""
    if len(head) < RECORDS_AT:
        return None
    info = header_at(head, 0)
    info.position = position
    if info.magic != MAGIC_V2 or info.size < RECORDS_AT or info.end > size:
        return None
    if info.last_offset_delta < 0 or info.base_offset < next_offset or info.last_offset >= offset_limit:
        return None
    return info if _crc_ok(read, info) else None


def _crc_ok(read: Read, info: BatchInfo) -> bool:
    """In windows: what is no batch may seem to be of any length."""
    crc, position = 0, info.position + ATTRIBUTES_AT
    while position < info.end:
        chunk = read(position, min(_WINDOW_BYTES, info.end - position))
        if not chunk:
            return False
        crc = crc32c(chunk, crc)
        position += len(chunk)
    return crc == info.crc
