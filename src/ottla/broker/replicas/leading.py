"""What the leader of a partition does for its followers: count their fetches, and change the ISR.

Functions of a `Partition` that this broker leads. The rules are `replication.leader`'s; the requests to the controller are
`isr_changes`'.
"""

from __future__ import annotations

from ottla.broker.replicas.partition import Partition
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.leader import IsrProposal


def check_follower(partition: Partition, replica_id: int, broker_epoch: int = -1) -> None:
    """Require that a broker is a follower of this partition, in its current registration.

    A broker may hear of a reassignment before the leader does.
    """
    leadership = partition.leadership
    if leadership is None:
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{partition.topic_partition} has no followers")
    follower = leadership.followers.get(replica_id)
    if follower is None:
        raise KafkaError(
            ErrorCode.UNKNOWN_LEADER_EPOCH,
            f"broker {replica_id} is no replica of {partition.topic_partition} in leader epoch {partition.leader_epoch}",
        )
    if 0 <= broker_epoch < follower.broker_epoch:
        # A delayed request from before a restart: the broker may have lost what it had then (KIP-903).
        raise KafkaError(
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            f"broker epoch {broker_epoch} of broker {replica_id} is over, the current one is {follower.broker_epoch}",
        )


def follower_fetched(partition: Partition, replica_id: int, offset: int, log_start_offset: int, broker_epoch: int) -> None:
    """A follower fetches from `offset`, which acknowledges everything before it."""
    leadership, log = partition.leadership, partition.log
    assert leadership is not None
    follower = leadership.followers[replica_id]
    known_end, known_start = follower.log_end_offset, follower.log_start_offset
    proposal = leadership.follower_fetched(
        replica_id,
        offset,
        log_start_offset,
        log.log_end_offset,
        log.high_watermark,
        partition.replication.monotonic_ms(),
        broker_epoch,
    )
    if offset != known_end:
        partition.advance_high_watermark()
    if log_start_offset != known_start:
        partition.on_progress(partition.topic_partition)  # DeleteRecords waits for the low watermark
    if proposal is not None:
        partition.replication.propose(partition, proposal)


def exceeds_leader_quota(partition: Partition, replica_id: int) -> bool:
    """Whether a throttled follower that is out of sync has to wait (KIP-73)."""
    if not partition.leader_throttled or replica_id in partition.isr:
        return False
    return partition.replication.leader_quota.exceeded(partition.replication.monotonic_ms())


def record_sent(partition: Partition, replica_id: int, size_bytes: int) -> None:
    """Count bytes sent to a follower, also against the leader's replication quota."""
    if partition.leader_throttled:
        partition.replication.leader_quota.record(size_bytes, partition.replication.monotonic_ms())
    if partition.traffic is not None:
        partition.traffic.replicated_out(size_bytes, added=replica_id in partition.adding)


def shrink_isr(partition: Partition) -> None:
    """Propose an ISR without the followers that lag for longer than `replica.lag.time.max.ms`."""
    leadership = partition.leadership
    if leadership is None:
        return
    proposal = leadership.shrink(partition.log.log_end_offset, partition.replication.monotonic_ms())
    if proposal is not None:
        partition.replication.propose(partition, proposal)
    else:
        # A follower outside of the ISR that held the high watermark back may lag by now.
        partition.advance_high_watermark()


def isr_confirmed(
    partition: Partition, proposal: IsrProposal, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int
) -> bool:
    """The controller accepted a proposal. False: the response is out of date and has no effect."""
    leadership = partition.leadership
    if leadership is None or not leadership.confirmed(proposal, isr, leader_epoch, partition_epoch):
        return False
    partition.isr, partition.partition_epoch = leadership.isr, leadership.partition_epoch
    partition.advance_high_watermark()
    partition.on_progress(partition.topic_partition)  # the ISR may be below min.insync.replicas now (R12)
    return True


def isr_refused(partition: Partition, proposal: IsrProposal, error: ErrorCode) -> bool:
    """The controller refused a proposal. True: send it again."""
    leadership = partition.leadership
    return leadership is not None and leadership.refused(proposal, error, partition.replication.monotonic_ms())
