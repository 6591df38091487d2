"""AlterPartition: checks the ISR that a leader proposes (KIP-497, KIP-841, KIP-903; C05, C06).

Pure. A proposal that equals the present ISR is accepted before its partition epoch is checked, so that a leader whose response
was lost can repeat it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ottla.cluster.image import ClusterImage, PartitionImage
from ottla.errors import ErrorCode

UNKNOWN_EPOCH = -1


@dataclass(frozen=True, slots=True)
class IsrProposal:
    leader: int
    leader_epoch: int
    isr: Sequence[tuple[int, int]]
    """(broker id, the broker epoch that the leader knows, or -1)."""
    partition_epoch: int
    recovering: bool = False


def alter_partition(image: ClusterImage, partition: PartitionImage, proposal: IsrProposal) -> PartitionImage | ErrorCode:
    """The partition with the proposed ISR (the same object if it has it already), or why it is refused."""
    if proposal.partition_epoch > partition.partition_epoch or proposal.leader_epoch > partition.leader_epoch:
        # The leader has heard from a newer controller.
        return ErrorCode.NOT_CONTROLLER
    if proposal.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if proposal.leader != partition.leader:
        return ErrorCode.INVALID_REQUEST
    isr = tuple(broker for broker, _ in proposal.isr)
    if set(isr) == set(partition.isr) and proposal.recovering == partition.recovering:
        return partition
    if proposal.partition_epoch < partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    if proposal.leader not in isr or len(set(isr)) < len(isr) or not set(isr) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if proposal.recovering and (len(isr) > 1 or not partition.recovering):
        return ErrorCode.INVALID_REQUEST
    for broker, epoch in proposal.isr:
        known = image.brokers.get(broker)
        if known is None or (broker in image.shutting_down and broker != partition.leader) or broker in partition.offline:
            return ErrorCode.INELIGIBLE_REPLICA
        if epoch not in (UNKNOWN_EPOCH, known.epoch):
            return ErrorCode.INELIGIBLE_REPLICA
    return replace(partition, isr=isr, recovering=proposal.recovering, partition_epoch=partition.partition_epoch + 1)
