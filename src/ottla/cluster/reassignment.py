"""Reassigns a partition to other replicas while it serves (KIP-455; F56, R18).

Pure rules of one partition. Until all target replicas are in the ISR, the partition has the target replicas and the original
ones: the new ones are marked as adding, those to go as removing. Then, in one step, the replicas to be removed leave.

1. The target replicas come first, in the requested order: the first of them becomes the preferred leader.
2. A cancelled or replaced reassignment starts from the replicas the partition had before the first one.
3. Each step grows the leader epoch, so that every replica is told.
4. No step leaves the ISR empty.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ottla.cluster.elections import bump_epochs, first_in_sync
from ottla.cluster.image import NO_LEADER, ClusterImage, PartitionImage
from ottla.errors import ErrorCode, KafkaError


def is_moving(partition: PartitionImage) -> bool:
    return bool(partition.adding or partition.removing)


def origin(partition: PartitionImage) -> tuple[int, ...]:
    return tuple(replica for replica in partition.replicas if replica not in partition.adding)


def target(partition: PartitionImage) -> tuple[int, ...]:
    return tuple(replica for replica in partition.replicas if replica not in partition.removing)


def check_target(image: ClusterImage, partition: PartitionImage, wanted: Sequence[int], *, factor_may_change: bool) -> None:
    """KafkaError if the partition cannot be reassigned to these brokers."""
    if not wanted:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition needs at least one replica")
    if len(set(wanted)) < len(wanted):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the assignment names a broker twice: {list(wanted)}")
    if any(broker < 0 for broker in wanted):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"broker ids must not be negative: {list(wanted)}")
    if not factor_may_change and len(wanted) != len(target(partition)):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the replication factor is {len(target(partition))}, not {len(wanted)}, and must not change",
        )
    gone = [broker for broker in wanted if broker not in origin(partition) and broker not in image.placement_candidates]
    if gone:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"these brokers are not running: {gone}")


def begin(partition: PartitionImage, wanted: Sequence[int], may_lead: Collection[int]) -> PartitionImage:
    """The partition with a reassignment to `wanted` in progress.

    KafkaError if that would remove the last replicas of the ISR: the others may not have all acknowledged records.
    """
    former = origin(partition)
    union = tuple(dict.fromkeys((*wanted, *former)))
    dropped = [replica for replica in partition.replicas if replica not in union]
    if dropped and not set(partition.isr) - set(dropped):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"the ISR {list(partition.isr)} would be removed completely")
    moved = replace(
        bump_epochs(partition),
        replicas=union,
        adding=tuple(replica for replica in union if replica not in former),
        removing=tuple(replica for replica in union if replica not in wanted),
    )
    left = _without(moved, dropped, may_lead)
    if left.leader == NO_LEADER != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "none of the remaining replicas can become leader now")
    return left


def finished(partition: PartitionImage, may_lead: Collection[int]) -> PartitionImage | None:
    """The partition with the reassignment complete; None if a target replica is not in the ISR, or none of them can lead."""
    arrived = target(partition)
    if not is_moving(partition) or not set(arrived) <= set(partition.isr):
        return None
    there = replace(bump_epochs(partition), replicas=arrived, adding=(), removing=())
    left = _without(there, partition.removing, may_lead)
    return None if left.leader == NO_LEADER else left


def _without(partition: PartitionImage, gone: Collection[int], may_lead: Collection[int]) -> PartitionImage:
    """Without these replicas in the ISR and as leader."""
    isr = tuple(replica for replica in partition.isr if replica not in gone)
    rest = replace(partition, isr=isr or partition.isr)
    if rest.leader in rest.replicas and rest.leader not in gone:
        return rest
    leader = first_in_sync(rest, may_lead)
    return replace(rest, leader=NO_LEADER if leader is None else leader)
