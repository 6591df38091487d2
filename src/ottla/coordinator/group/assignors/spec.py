"""What an assignor is given, and what it returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final

Assignment = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions; topics without a partition are not named."""

_halves: Final = Struct(">qq").unpack


@dataclass(frozen=True, slots=True)
class MemberSpec:
    topics: frozenset[bytes]
    """What it subscribes to, as far as it exists."""
    assigned: Assignment
    """What was intended for it before."""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[bytes, int]
    """Of each topic that a member subscribes to."""
    homogeneous: bool
    """All members subscribe to the same."""


def uuid_order(topic_id: bytes) -> tuple[int, int]:
    """The order in which Java sorts uuids: as two signed numbers."""
    first, second = _halves(topic_id)
    return first, second
