"""Java's String.hashCode, by which Kafka maps groups and transactional ids to partitions and orders a HashMap."""

from __future__ import annotations

from functools import lru_cache


def string_hash(text: str) -> int:
    """String.hashCode, as an unsigned number of 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    code = 0
    for at in range(0, len(units), 2):
        code = (31 * code + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return code


@lru_cache(maxsize=16_384)
def positive_hash(text: str) -> int:
    """Kafka's Utils.abs of the hash: the absolute value, and 0 for the smallest int."""
    code = string_hash(text)
    signed = code - (1 << 32) if code & 0x80000000 else code
    return 0 if signed == -(1 << 31) else abs(signed)
