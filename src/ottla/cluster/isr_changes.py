"""AlterPartition: a leader's wish for other in-sync replicas, held against what the controller knows (C05, C06).

Pure (KIP-497, KIP-841, KIP-903). The order of the checks matters: a wish that is fulfilled already is granted before its age is
looked at, so that a leader whose answer was lost may ask again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ottla.cluster.image import ClusterImage, PartitionImage
from ottla.errors import ErrorCode

UNKNOWN_EPOCH = -1


@dataclass(frozen=True, slots=True)
class IsrWish:
    leader: int
    leader_epoch: int
    isr: Sequence[tuple[int, int]]
    """(broker, the epoch of its life that the leader has seen, or -1)."""
    partition_epoch: int
    recovering: bool = False


def grant(image: ClusterImage, partition: PartitionImage, wish: IsrWish) -> PartitionImage | ErrorCode:
    """The partition as wished (the very same object if it is so already), or why not."""
    if wish.partition_epoch > partition.partition_epoch or wish.leader_epoch > partition.leader_epoch:
        # The leader knows more than this controller, which therefore cannot be in office any more.
        return ErrorCode.NOT_CONTROLLER
    if wish.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if wish.leader != partition.leader:
        return ErrorCode.INVALID_REQUEST
    isr = tuple(broker for broker, _ in wish.isr)
    if set(isr) == set(partition.isr) and wish.recovering == partition.recovering:
        return partition
    if wish.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if wish.leader not in isr or len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if wish.recovering and (len(isr) > 1 or not partition.recovering):
        return ErrorCode.INVALID_REQUEST
    for broker, epoch in wish.isr:
        known = image.brokers.get(broker)
        if known is None or (broker in image.shutting_down and broker != partition.leader) or broker in partition.offline:
            return ErrorCode.INELIGIBLE_REPLICA
        if epoch not in (UNKNOWN_EPOCH, known.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return replace(partition, isr=isr, recovering=wish.recovering, partition_epoch=partition.partition_epoch + 1)
