"""Going through all batches of a segment file, believing nothing.

Owns: the judgement which prefix of a `.log` file is whole. Used by recovery (every CRC is checked) and where only an index is
lost (headers are followed). Compiled by mypyc: this loop sees every batch of a broker that died.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla.errors import MalformedInput
from ottla.ports import File
from ottla.records.batch import BatchInfo, batch_crc_ok, read_batch_header
from ottla.storage.offset_index import INT32_MAX

HEADER_BYTES: Final = 61
CHUNK_BYTES: Final = 4 << 20


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
    while size - position >= HEADER_BYTES:
        count = min(CHUNK_BYTES, size - position)
        chunk = file.read(position, count)
        at = 0
        broken = len(chunk) < count
        while len(chunk) - at >= HEADER_BYTES:
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
