"""Selects the replica that a consumer should fetch from: the one in its rack (KIP-392, R19)."""

from __future__ import annotations

from collections.abc import Callable

from ottla.replication.leader import Leadership
from ottla.types import NO_OFFSET

RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The one value of `replica.selector.class` that has an effect."""


def closest_replica(leadership: Leadership, rack: str, offset: int, rack_of: Callable[[int], str | None]) -> int | None:
    """The in-sync follower in the consumer's rack that has the offset and the largest log end offset. None: the leader."""
    if rack_of(leadership.broker_id) == rack:
        return None
    best, best_end = None, NO_OFFSET
    for replica in leadership.isr:
        follower = leadership.followers.get(replica)
        if follower is None or rack_of(replica) != rack:
            continue
        if follower.log_start_offset <= offset <= follower.log_end_offset and follower.log_end_offset > best_end:
            best, best_end = replica, follower.log_end_offset
    return best
