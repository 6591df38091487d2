"""The partitions in which producers put a key: by murmur2 (Java, Ottla and most others) or crc32 (librdkafka's default)."""

from __future__ import annotations

import zlib


def partitions_of_key(key: bytes, count: int) -> dict[str, int]:
    """The partition of the key by the name of the hash, in a topic with `count` partitions."""
    from ottla.records.partitioner import murmur2  # other commands need no records

    return {"murmur2": (murmur2(key, 0, len(key)) & 0x7FFFFFFF) % count, "crc32": zlib.crc32(key) % count}
