"""Who leads a partition, and who counts as in sync, when brokers come and go: the rules of one partition (F51, F54, C07, R16).

Pure. Every rule looks at the present only ("who is here") and not at what happened, so it may be asked at any time and as often
as one likes: after a failure, a return, a take-over by another controller. Nothing to do gives back the very same object.

1. A leader comes from the in-sync replicas, the first in replica order that may lead; from outside only where unclean elections
   are allowed, and then it is the only one in sync.
2. Every change of leader or in-sync replicas made here grows the leader epoch by one (brokers heed an order only then) and the
   partition epoch by one (it is the version of the node).
3. The in-sync replicas never become none: without a living one they stay as they were, for all of them hold what was
   acknowledged.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from ottla.cluster.image import NO_LEADER, ClusterImage, PartitionImage


def standing(image: ClusterImage, partition: PartitionImage) -> set[int]:
    """The replicas that run."""
    return {replica for replica in partition.replicas if replica in image.brokers and replica not in partition.offline}


def eligible(image: ClusterImage, partition: PartitionImage) -> set[int]:
    """The replicas that run and mean to go on."""
    return standing(image, partition) - image.shutting_down


def settle(partition: PartitionImage, here: Collection[int], may_lead: Collection[int], *, unclean: bool) -> PartitionImage:
    """The partition as it should be with these replicas standing, of which some are eligible."""
    if partition.leader in may_lead:
        return _with_isr(partition, partition.leader, [r for r in partition.isr if r in may_lead])
    leader = first_in_sync(partition, may_lead)
    if leader is not None:
        return _with_isr(partition, leader, [r for r in partition.isr if r in may_lead])
    if partition.leader in here:
        # It is asked to go, but nobody can take its place.
        return _with_isr(partition, partition.leader, [r for r in partition.isr if r in may_lead or r == partition.leader])
    if unclean:
        leader = next((replica for replica in partition.replicas if replica in may_lead), None)
        if leader is not None:
            return replace(_changed(partition), leader=leader, isr=(leader,), recovering=True)
    if partition.leader == NO_LEADER:
        return partition
    return replace(_changed(partition), leader=NO_LEADER)


def prefer(partition: PartitionImage, may_lead: Collection[int]) -> PartitionImage | None:
    """Led by its first replica; None if that one is not in sync or not here. The same object if it leads already."""
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        return partition
    if preferred not in partition.isr or preferred not in may_lead:
        return None
    return replace(_changed(partition), leader=preferred)


def first_in_sync(partition: PartitionImage, may_lead: Collection[int]) -> int | None:
    return next((replica for replica in partition.replicas if replica in may_lead and replica in partition.isr), None)


def bump(partition: PartitionImage) -> PartitionImage:
    """The same leader under a new epoch: how brokers learn of other replicas."""
    return _changed(partition)


def _changed(partition: PartitionImage) -> PartitionImage:
    return replace(partition, leader_epoch=partition.leader_epoch + 1, partition_epoch=partition.partition_epoch + 1)


def _with_isr(partition: PartitionImage, leader: int, isr: Collection[int]) -> PartitionImage:
    if leader == partition.leader and len(isr) == len(partition.isr):
        return partition
    return replace(_changed(partition), leader=leader, isr=tuple(isr))
