"""What a replicated partition needs from its broker: the clock, which brokers are alive, ISR changes, and replication quotas.

One object for all partitions of a broker. A broker alone has `ALONE`, which is never called.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from ottla.replication.throttle import ReplicationQuota

if TYPE_CHECKING:
    from ottla.broker.replicas.partition import Partition
    from ottla.replication.leader import IsrProposal


@dataclass(slots=True)
class ReplicationContext:
    monotonic_ms: Callable[[], int]
    is_alive: Callable[[int], bool]
    """Whether a broker is in the current image."""
    propose: Callable[[Partition, IsrProposal], None]
    """Send an ISR change to the controller."""
    lag_time_max_ms: int = 30_000
    leader_quota: ReplicationQuota = field(default_factory=ReplicationQuota)
    """For throttled replicas that fetch from this broker (KIP-73)."""
    follower_quota: ReplicationQuota = field(default_factory=ReplicationQuota)
    """For throttled replicas of this broker that fetch."""


def _no_isr_changes(partition: Partition, proposal: IsrProposal) -> None:
    raise AssertionError("a broker alone has no ISR to change")


ALONE = ReplicationContext(lambda: 0, lambda broker_id: True, _no_isr_changes)
