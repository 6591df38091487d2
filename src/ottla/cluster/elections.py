"""Elects the leader and shrinks the ISR of one partition when replicas come and go (F51, F54, C07, R16).

Pure. The rules depend on the replicas that are online now, not on what happened, so they may be applied at any time. If nothing
changes, they return the same object.

1. The leader is the first replica, in replica order, that is in the ISR and eligible. A replica outside the ISR becomes leader
   only by an unclean election, and is then the only one in the ISR.
2. Every change grows the leader epoch (without which replicas ignore a LeaderAndIsr request) and the partition epoch (the version
   of the partition's state node) by one.
3. The ISR is never empty: if none of it is online it stays as it was, because any of its replicas has all acknowledged records.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from dataclasses import replace

from ottla.cluster.image import NO_LEADER, ClusterImage, PartitionImage


def online_replicas(image: ClusterImage, partition: PartitionImage) -> set[int]:
    """The replicas whose broker and data directory are online."""
    return {replica for replica in partition.replicas if replica in image.brokers and replica not in partition.offline}


def eligible_replicas(image: ClusterImage, partition: PartitionImage) -> set[int]:
    """The online replicas whose broker is not shutting down."""
    return online_replicas(image, partition) - image.shutting_down


def elect_leader(
    partition: PartitionImage, online: Collection[int], may_lead: Collection[int], *, unclean: bool
) -> PartitionImage:
    """The partition with the leader and the ISR that these online and eligible replicas allow."""
    if partition.leader in may_lead:
        return _with_isr(partition, partition.leader, [r for r in partition.isr if r in may_lead])
    leader = first_in_sync(partition, may_lead)
    if leader is not None:
        return _with_isr(partition, leader, [r for r in partition.isr if r in may_lead])
    if partition.leader in online:
        # Its broker is shutting down, but no other replica can lead.
        return _with_isr(partition, partition.leader, [r for r in partition.isr if r in may_lead or r == partition.leader])
    if unclean:
        leader = next((replica for replica in partition.replicas if replica in may_lead), None)
        if leader is not None:
            return replace(bump_epochs(partition), leader=leader, isr=(leader,), recovering=True)
    if partition.leader == NO_LEADER:
        return partition
    return replace(bump_epochs(partition), leader=NO_LEADER)


def elect_preferred(partition: PartitionImage, may_lead: Collection[int]) -> PartitionImage | None:
    """The partition led by its first replica; None if that one is not eligible or not in the ISR. The same object if it leads."""
    preferred = partition.replicas[0]
    if partition.leader == preferred:
        return partition
    if preferred not in partition.isr or preferred not in may_lead:
        return None
    return replace(bump_epochs(partition), leader=preferred)


def first_in_sync(partition: PartitionImage, may_lead: Collection[int]) -> int | None:
    return next((replica for replica in partition.replicas if replica in may_lead and replica in partition.isr), None)


def bump_epochs(partition: PartitionImage) -> PartitionImage:
    return replace(partition, leader_epoch=partition.leader_epoch + 1, partition_epoch=partition.partition_epoch + 1)


def _with_isr(partition: PartitionImage, leader: int, isr: Collection[int]) -> PartitionImage:
    if leader == partition.leader and len(isr) == len(partition.isr):
        return partition
    return replace(bump_epochs(partition), leader=leader, isr=tuple(isr))


def unbalanced(image: ClusterImage, percentage_max: int) -> list[tuple[str, int, PartitionImage]]:
    """(topic, partition, its new state) of all that should move back to their preferred leader now (F54).

    The imbalance of a broker is the share of the partitions preferring it that are led by another broker. Above the allowed
    percentage, all of them move that can.
    """
    preferring: dict[int, int] = defaultdict(int)
    led_elsewhere: dict[int, list[tuple[str, int, PartitionImage]]] = defaultdict(list)
    for topic in image.topics.values():
        for number, partition in enumerate(topic.partitions):
            preferred = partition.replicas[0]
            preferring[preferred] += 1
            if partition.leader != preferred:
                led_elsewhere[preferred].append((topic.name, number, partition))
    found: list[tuple[str, int, PartitionImage]] = []
    for broker, partitions in led_elsewhere.items():
        if broker not in image.brokers or len(partitions) * 100 <= percentage_max * preferring[broker]:
            continue
        for name, number, partition in partitions:
            moved = elect_preferred(partition, eligible_replicas(image, partition))
            if moved is not None and moved is not partition and not partition.adding and not partition.removing:
                found.append((name, number, moved))
    return found
