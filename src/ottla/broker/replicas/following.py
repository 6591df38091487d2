"""What a follower does with its replica: append what the leader sends, truncate what the leader does not have.

Functions of a `Partition` that this broker follows, called by the replica fetcher. KafkaError and UnexpectedOffset mean that
nothing was appended.
"""

from __future__ import annotations

from ottla.broker.replicas.partition import Partition
from ottla.storage.log import AppendInfo, UnexpectedOffset
from ottla.types import Buffer


def append_as_follower(
    partition: Partition, records: Buffer, leader_high_watermark: int, leader_log_start_offset: int, now_ms: int
) -> AppendInfo | None:
    """Append what the leader sent, and adopt its high watermark and log start offset."""
    log = partition.log
    info: AppendInfo | None = None
    with partition.storage_errors:
        if len(records):
            try:
                info = log.append_as_follower(records, now_ms)
            except UnexpectedOffset as found:
                is_empty = log.log_start_offset == log.log_end_offset
                if not is_empty or not found.first_offset < log.log_end_offset <= found.last_offset:
                    raise
                # The leader's log starts inside a batch (DeleteRecords), and batches are sent whole: start this log with that
                # batch. Its log start offset is corrected below.
                log.truncate_fully_and_start_at(found.first_offset, now_ms)
                info = log.append_as_follower(records, now_ms)
            partition.after_write(info, now_ms)
            if partition.traffic is not None:
                partition.traffic.replicated_in(len(records), added=partition.is_added)
            if partition.follower_throttled:
                partition.replication.follower_quota.record(len(records), partition.replication.monotonic_ms())
        committed = min(leader_high_watermark, log.log_end_offset)
        if committed > log.high_watermark:
            log.high_watermark = committed
            partition.on_progress(partition.topic_partition)
        if leader_log_start_offset > log.log_start_offset:
            log.advance_log_start(min(leader_log_start_offset, log.high_watermark))
    return info


def exceeds_follower_quota(partition: Partition, leader_high_watermark: int | None) -> bool:
    """Whether a throttled replica that is out of sync has to pause fetching (KIP-73). `leader_high_watermark` is None while
    unknown."""
    if leader_high_watermark is not None and leader_high_watermark <= partition.log.log_end_offset:
        return False
    return partition.replication.follower_quota.exceeded(partition.replication.monotonic_ms())


def truncate_to(partition: Partition, offset: int, now_ms: int) -> bool:
    """Drop the records from `offset` on. True: the recovery point moved back, so the checkpoint on disk is too high."""
    log = partition.log
    recovery_point = log.recovery_point
    with partition.storage_errors:
        log.truncate_to(offset, now_ms)
    return log.recovery_point < recovery_point


def truncate_fully_and_start_at(partition: Partition, offset: int, now_ms: int) -> None:
    """Drop all records: the leader's log starts behind the end of this one."""
    with partition.storage_errors:
        partition.log.truncate_fully_and_start_at(offset, now_ms)
