"""Java's hash of a string: by it Kafka shares out groups, transactional ids and topics, and orders what is in a HashMap."""

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
    """Its absolute value, as Kafka's Utils.abs has it: the smallest int has no positive counterpart and counts as 0."""
    code = string_hash(text)
    signed = code - (1 << 32) if code & 0x80000000 else code
    return 0 if signed == -(1 << 31) else abs(signed)
