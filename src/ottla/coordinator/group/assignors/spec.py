"""The input and output of an assignor."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from struct import Struct
from typing import Final

Assignment = Mapping[bytes, frozenset[int]]
"""Topic id -> partitions; topics without a partition are left out."""

_halves: Final = Struct(">qq").unpack


@dataclass(frozen=True, slots=True)
class MemberSpec:
    topics: frozenset[bytes]
    """The existing topics that it subscribes to."""
    assigned: Assignment
    """Its previous target assignment."""
    instance_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupSpec:
    members: Mapping[str, MemberSpec]
    partition_counts: Mapping[bytes, int]
    """The partition counts of all subscribed topics."""
    homogeneous: bool
    """All members have the same subscription."""


def uuid_order(topic_id: bytes) -> tuple[int, int]:
    """The order in which Java sorts uuids: as two signed numbers."""
    first, second = _halves(topic_id)
    return first, second
