"""Moving a partition to other replicas while it serves (KIP-455; F56, R18).

Pure rules of one partition. A reassignment has a target; until every replica of it is in sync, the partition has the replicas of
the target and its former ones ("union"), the new ones marked as adding, those to go as removing. Then, in one step, the former
ones leave.

1. The target's replicas stand first, in its order: the first of them is the preferred leader to be.
2. A cancelled or replaced reassignment starts from the replicas the partition had before the first one.
3. Each step grows the leader epoch, so that every replica hears of it.
4. No step leaves the partition without a replica in sync.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from ottla.cluster.elections import bump, first_in_sync
from ottla.cluster.image import NO_LEADER, ClusterImage, PartitionImage
from ottla.errors import ErrorCode, KafkaError


def is_moving(partition: PartitionImage) -> bool:
    return bool(partition.adding or partition.removing)


def origin(partition: PartitionImage) -> tuple[int, ...]:
    return tuple(replica for replica in partition.replicas if replica not in partition.adding)


def target(partition: PartitionImage) -> tuple[int, ...]:
    return tuple(replica for replica in partition.replicas if replica not in partition.removing)


def check_target(image: ClusterImage, partition: PartitionImage, wanted: Sequence[int], *, factor_may_change: bool) -> None:
    """KafkaError if the partition cannot be sent there."""
    if not wanted:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "a partition needs at least one replica")
    if len(set(wanted)) < len(wanted):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"a broker is named twice: {list(wanted)}")
    if any(broker < 0 for broker in wanted):
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"there are no such brokers: {list(wanted)}")
    if not factor_may_change and len(wanted) != len(target(partition)):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"the partition has {len(target(partition))} replicas, not {len(wanted)}, and their number was not to change",
        )
    gone = [broker for broker in wanted if broker not in origin(partition) and broker not in image.staying]
    if gone:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"brokers that do not run cannot get replicas: {gone}")


def begin(partition: PartitionImage, wanted: Sequence[int], may_lead: Collection[int]) -> PartitionImage:
    """On the way to `wanted` (which may be where it is: then, or if all of it is in sync, the way is at its end at once).

    KafkaError if that would take the last replicas in sync: those that stay may not have what was acknowledged.
    """
    former = origin(partition)
    union = tuple(dict.fromkeys((*wanted, *former)))
    dropped = [replica for replica in partition.replicas if replica not in union]
    if dropped and not set(partition.isr) - set(dropped):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"only {list(partition.isr)} are in sync, which would not be replicas any more"
        )
    moved = replace(
        bump(partition),
        replicas=union,
        adding=tuple(replica for replica in union if replica not in former),
        removing=tuple(replica for replica in union if replica not in wanted),
    )
    left = _without(moved, dropped, may_lead)
    if left.leader == NO_LEADER != partition.leader:
        raise KafkaError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "none of the replicas that stay can lead now")
    return left


def finished(partition: PartitionImage, may_lead: Collection[int]) -> PartitionImage | None:
    """The partition at its target; None if some of the target are not in sync, or none of them can lead."""
    arrived = target(partition)
    if not is_moving(partition) or not set(arrived) <= set(partition.isr):
        return None
    there = replace(bump(partition), replicas=arrived, adding=(), removing=())
    left = _without(there, partition.removing, may_lead)
    return None if left.leader == NO_LEADER else left


def _without(partition: PartitionImage, gone: Collection[int], may_lead: Collection[int]) -> PartitionImage:
    """Replicas that are none any more are not in sync and do not lead."""
    isr = tuple(replica for replica in partition.isr if replica not in gone)
    rest = replace(partition, isr=isr or partition.isr)
    if rest.leader in rest.replicas and rest.leader not in gone:
        return rest
    leader = first_in_sync(rest, may_lead)
    return replace(rest, leader=NO_LEADER if leader is None else leader)
