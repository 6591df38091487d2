"""The default partitioner of Java's producer: murmur2 of the key, so that all producers of a topic agree.

Records without a key are distributed round-robin. (Java's producer uses one partition per batch, KIP-480, to save requests; a
sink of whole micro-batches does not need that.)
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from librt.strings import BytesWriter, write_i32_le

from ottla.records.column_writer import BytesInput

if TYPE_CHECKING:
    from mypy_extensions import i64

_SEED: Final = 0x9747B28C
_M: Final = 0x5BD1E995
_MASK: Final = 0xFFFFFFFF


def murmur2(data: bytes, start: i64, size: i64) -> i64:
    """The 32-bit hash, unsigned. No product leaves the range of int64: one factor is below 2**32, the other below 2**31."""
    h: i64 = (_SEED ^ size) & _MASK
    k: i64 = 0
    at: i64 = start
    end: i64 = start + (size & ~3)
    while at < end:
        k = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        k = k * _M & _MASK
        k ^= k >> 24
        k = k * _M & _MASK
        h = h * _M & _MASK
        h ^= k
        at += 4
    rest: i64 = size & 3
    if rest > 2:
        h ^= data[at + 2] << 16
    if rest > 1:
        h ^= data[at + 1] << 8
    if rest > 0:
        h ^= data[at]
        h = h * _M & _MASK
    h ^= h >> 13
    h = h * _M & _MASK
    h ^= h >> 15
    return h


def partition_of_keys(keys: BytesInput | None, count: int, partitions: int, next_null: int = 0) -> bytes:
    """The partitions of `count` keys as int32. Null keys are distributed round-robin from `next_null` on."""
    if partitions < 1:
        raise ValueError("a topic has at least one partition")
    out = BytesWriter()
    total: i64 = count
    wide: i64 = partitions
    null: i64 = next_null % partitions
    row: i64 = 0
    size: i64 = -1
    chosen: int = 0
    while row < total:
        if keys is not None:
            size = keys.length_of(row)
        if size < 0 or keys is None:
            chosen = null
            null += 1
            if null == wide:
                null = 0
        else:
            hashed: i64 = murmur2(keys.data, keys.start_of(row), size) & 0x7FFFFFFF
            chosen = hashed % wide
        write_i32_le(out, chosen)
        row += 1
    return out.getvalue()
