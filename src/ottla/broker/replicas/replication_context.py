"""What a partition with several replicas needs of the broker around it: time, who is alive, and a way to change the ISR.

One object for all partitions of a broker. A broker alone has `ALONE`, of which nothing is ever asked.
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
class Replication:
    monotonic_ms: Callable[[], int]
    is_alive: Callable[[int], bool]
    """Whether a broker is in the cluster now, as far as this one knows."""
    propose: Callable[[Partition, IsrProposal], None]
    """Ask the controller for another ISR."""
    lag_time_max_ms: int = 30_000
    leader_quota: ReplicationQuota = field(default_factory=ReplicationQuota)
    """Of what this broker sends to throttled replicas, as their leader (KIP-73)."""
    follower_quota: ReplicationQuota = field(default_factory=ReplicationQuota)
    """Of what its own throttled replicas fetch."""


def _nobody(partition: Partition, proposal: IsrProposal) -> None:
    raise AssertionError("a broker alone has no in-sync replicas to change")


ALONE = Replication(lambda: 0, lambda broker_id: True, _nobody)
