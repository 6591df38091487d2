"""One replica on this broker: its log, its role, and how far consumers may read.

Owns the leadership of one partition as the cluster image gives it, and the high watermark. Never waits: a change that others may
be waiting for is reported to `on_progress`.

1. Only the leader appends; its epoch stamps every batch.
2. The high watermark is the smallest log end of the in-sync replicas. With this broker alone in sync that is its own log end.
3. A request that names a leader epoch is served only if it is the current one (KIP-320).
4. An I/O error takes the whole data directory offline; the partition then answers KAFKA_STORAGE_ERROR.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import TRANSACTIONAL_BIT
from ottla.records.validate import Rules, check
from ottla.storage.log import AppendInfo, Log, OffsetByTime, ReadInfo
from ottla.types import NO_LEADER_EPOCH, NO_OFFSET, Buffer, OffsetAndEpoch, TopicPartition

if TYPE_CHECKING:
    from ottla.cluster.image import PartitionImage
    from ottla.storage.data_dir import DataDir
    from ottla.storage.txn_index import AbortedTxn

ACKS_ALL = -1


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a partition has to know of the transaction that records are written in."""

    verified: bool
    """Its coordinator says that the partition is part of it. Needed for the first records only (T10)."""
    bumps_epochs: bool = False
    """Of transaction version 2: its epoch is its own, and its sequences begin at 0."""


NO_TRANSACTION = Transaction(verified=False)


class Partition:
    __slots__ = (
        "_broker_id",
        "_flush_requested",
        "_offline",
        "_on_failure",
        "_on_progress",
        "data_dir",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "log",
        "min_insync_replicas",
        "replicas",
        "rules",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        log: Log,
        data_dir: DataDir,
        broker_id: int,
        rules: Rules,
        min_insync_replicas: int,
        on_progress: Callable[[TopicPartition], None],
        on_failure: Callable[[DataDir, OSError], None],
        flush_requested: dict[Partition, None],
    ) -> None:
        self.log = log
        self.data_dir = data_dir
        self.topic_partition = log.topic_partition
        self.topic_id = log.topic_id
        self.rules = rules
        self.min_insync_replicas = min_insync_replicas
        self.leader = -1
        self.leader_epoch = NO_LEADER_EPOCH
        self.is_leader = False
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self._broker_id = broker_id
        self._offline = False
        self._on_progress = on_progress
        self._on_failure = on_failure
        self._flush_requested = flush_requested

    # Role

    def take_role(self, image: PartitionImage) -> None:
        """Become what the controller decided: leader of a new epoch, follower, or the same as before with another ISR."""
        was_leader, former_epoch = self.is_leader, self.leader_epoch
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self.isr = image.isr
        self.replicas = image.replicas
        self.is_leader = image.leader == self._broker_id
        if self._offline:
            return
        if self.is_leader:
            if not was_leader or former_epoch != image.leader_epoch:
                self.log.start_epoch(image.leader_epoch, self.log.log_end_offset)
            self._advance_high_watermark()
        # Those who wait on this partition must see that its leader or epoch changed.
        self._on_progress(self.topic_partition)

    def replace_log(self, log: Log, data_dir: DataDir) -> None:
        """The replica lies in another directory now. Its log has the same records."""
        self.log = log
        self.data_dir = data_dir

    def go_offline(self) -> None:
        self._offline = True
        self._on_progress(self.topic_partition)

    @property
    def is_offline(self) -> bool:
        return self._offline

    def check_leader(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """That this broker leads the partition, in the epoch the client believes in (R08)."""
        if self._offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the data directory of {self.topic_partition} is offline")
        if current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"{self.topic_partition} is in leader epoch {self.leader_epoch}, not {current_leader_epoch} any more",
                )
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"{self.topic_partition} is in leader epoch {self.leader_epoch} here, {current_leader_epoch} is not known yet",
            )
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.leader} leads {self.topic_partition}")

    # Write

    def append(
        self,
        records: Buffer,
        required_acks: int,
        now_ms: int,
        *,
        from_client: bool = True,
        transaction: Transaction | None = None,
    ) -> AppendInfo:
        """Append what a producer sent, as leader. The records are checked; KafkaError means that nothing was kept.

        Transactional records need to say of which transaction they are; a coordinator's own (not `from_client`) need not.
        """
        if self._offline or not self.is_leader:
            self.check_leader()
        if required_acks == ACKS_ALL and len(self.isr) < self.min_insync_replicas:
            raise self._not_enough_replicas()
        checked = check(records, self.rules, now_ms, from_client)
        if transaction is None:
            if from_client and checked.batches[0].attributes & TRANSACTIONAL_BIT:
                raise KafkaError(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records came without a transactional id"
                )
            transaction = NO_TRANSACTION
        try:
            log = self.log
            info = log.append(
                checked,
                self.leader_epoch,
                now_ms,
                from_client=from_client,
                verified=transaction.verified,
                bumps_epochs=transaction.bumps_epochs,
            )
            self._after_append(info, now_ms)
        except OSError as error:
            raise self._failed(error) from error
        self._advance_high_watermark()
        return info

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        *,
        commit: bool,
        coordinator_epoch: int,
        now_ms: int,
        transaction_version: int = 0,
    ) -> AppendInfo:
        """Append the marker that ends a producer's transaction, as leader (T12). It counts once the high watermark is past it."""
        self.check_leader()
        if len(self.isr) < self.min_insync_replicas:
            raise self._not_enough_replicas()
        try:
            info = self.log.append_marker(
                producer_id,
                producer_epoch,
                commit=commit,
                coordinator_epoch=coordinator_epoch,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                transaction_version=transaction_version,
            )
            self._after_append(info, now_ms)
        except OSError as error:
            raise self._failed(error) from error
        self._advance_high_watermark()
        return info

    def _after_append(self, info: AppendInfo, now_ms: int) -> None:
        log = self.log
        if info.rolled:
            self._flush_requested[self] = None
        if log.unflushed_messages >= log.config.flush_messages:
            # Asked for by the settings: acknowledged records are then on the disk (F14).
            log.flush(now_ms)

    def _not_enough_replicas(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{self.topic_partition} has {len(self.isr)} replicas in sync, min.insync.replicas={self.min_insync_replicas}",
        )

    def _advance_high_watermark(self) -> None:
        log = self.log
        # Alone in sync: nobody else's position counts. With followers the smallest position of the ISR will stand here.
        if len(self.isr) <= 1 and log.high_watermark < log.log_end_offset:
            log.high_watermark = log.log_end_offset
            self._on_progress(self.topic_partition)

    def delete_records(self, offset: int) -> int:
        """Forget all records below `offset` (-1: below the high watermark). Returns the new log start."""
        self.check_leader()
        if "delete" not in self.log.config.cleanup_policy:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"records of {self.topic_partition} cannot be deleted: its cleanup.policy has no delete",
            )
        try:
            self.log.advance_log_start(self.log.high_watermark if offset == NO_OFFSET else offset)
        except OSError as error:
            raise self._failed(error) from error
        self._on_progress(self.topic_partition)
        return self.log.log_start_offset

    # Read

    @property
    def high_watermark(self) -> int:
        return self.log.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Up to where every transaction is decided. Without transactions that is all that may be read."""
        return self.log.last_stable_offset

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool) -> ReadInfo:
        try:
            return self.log.read(offset, max_bytes, end_offset, min_one_batch)
        except OSError as error:
            raise self._failed(error) from error

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions of which records may lie in a range (T02)."""
        try:
            return self.log.aborted(start_offset, end_offset)
        except OSError as error:
            raise self._failed(error) from error

    def divergence(self, last_fetched_epoch: int, fetch_offset: int) -> OffsetAndEpoch | None:
        """Where the fetcher's log parts from this one, if (last fetched epoch, fetch offset) is not on it (R10)."""
        end = self.log.end_offset_for_epoch(last_fetched_epoch)
        if end.offset < 0 or end.leader_epoch < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"nothing is known of leader epoch {last_fetched_epoch} of {self.topic_partition}"
            )
        if end.leader_epoch < last_fetched_epoch or end.offset < fetch_offset:
            return end
        return None

    def offset_for_timestamp(self, timestamp_ms: int) -> OffsetByTime | None:
        try:
            return self.log.offset_for_timestamp(timestamp_ms)
        except OSError as error:
            raise self._failed(error) from error

    def offset_of_max_timestamp(self) -> OffsetByTime | None:
        try:
            return self.log.offset_of_max_timestamp()
        except OSError as error:
            raise self._failed(error) from error

    def _failed(self, error: OSError) -> KafkaError:
        self._on_failure(self.data_dir, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} cannot be read or written: {error}")
