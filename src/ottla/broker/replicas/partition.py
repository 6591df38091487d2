"""One replica of a partition on this broker: its log, its role, and its high watermark.

Owns the role that the controller assigns, and appends and reads with what follows from them. `leading` has what a leader does for
its followers, `following` what a follower does with the leader's records. Never waits. Every change that a request may be waiting
for is reported to `on_progress`: under the topic-partition where consumers can see it or the leader changed, under the partition
object itself where followers have more to fetch.

1. Only the leader appends what producers send, and stamps its leader epoch into every batch. A follower appends what the leader
   sends, unchanged.
2. The leader's high watermark is the smallest log end offset of the in-sync replicas (`replication.leader`). With one replica it
   is the log end offset. A follower's is the leader's, limited to its own log end offset.
3. A request that names a leader epoch is served only if it is the current one (KIP-320).
4. An I/O error takes the whole data directory offline; the partition then answers KAFKA_STORAGE_ERROR.
5. Records that `flush.messages` requires on disk are neither acknowledged nor visible before the flush has ended (F14). The flush
   runs in a worker; records appended meanwhile wait for it, and for the next one if they need it. A follower flushes what it
   owes before its next fetch.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Protocol

from ottla.broker.replicas.replication_context import ALONE, ReplicationContext
from ottla.broker.replicas.traffic import TopicTraffic
from ottla.cluster.image import INTERNAL_TOPICS, PartitionImage
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import TRANSACTIONAL_BIT
from ottla.records.compression import NONE
from ottla.records.own import own_batch
from ottla.records.validate import CREATE_TIME, PRODUCER, UNPACKED_BYTES_HERE, Checked, Rules, check
from ottla.replication.leader import Leadership
from ottla.storage.config import INT64_MAX
from ottla.storage.data_dir import DataDir
from ottla.storage.log import AppendInfo, Log, OffsetByTime, ReadInfo
from ottla.storage.txn_index import AbortedTxn
from ottla.types import NO_LEADER_EPOCH, NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Buffer, OffsetAndEpoch

logger = logging.getLogger(__name__)

ACKS_ALL: Final = -1


@dataclass(frozen=True, slots=True)
class VerifiedTransaction:
    """The transaction coordinator confirmed that the partition is part of the producer's transaction (T10)."""

    bumps_epochs: bool = False
    """Transaction version 2: every transaction has its own producer epoch, and its sequences begin at 0 (KIP-890)."""


class StorageErrors:
    """`with partition.storage_errors:` turns an OSError into KAFKA_STORAGE_ERROR and takes the data directory offline."""

    def __init__(self, partition: Partition) -> None:
        self._partition = partition

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if isinstance(error, OSError):
            raise self._partition.failed(error) from error


class Flushes(Protocol):
    """Flushes logs in workers."""

    def request(self, partition: Partition) -> None:
        """Flush soon: a segment was sealed."""
        ...

    def forget(self, partition: Partition) -> None:
        """The replica is gone: its request needs no flush."""
        ...

    def flush_now(self, partition: Partition) -> None:
        """Start a flush whose end is reported to `flush_ended`."""
        ...


class Partition:
    def __init__(
        self,
        log: Log,
        data_dir: DataDir,
        broker_id: int,
        rules: Rules,
        min_insync_replicas: int,
        on_progress: Callable[[Hashable], None],
        on_failure: Callable[[DataDir, OSError], None],
        flushes: Flushes | None = None,
        replication: ReplicationContext = ALONE,
    ) -> None:
        """Without `flushes` a flush runs inline."""
        self.log = log
        self.data_dir = data_dir
        self.topic_partition = log.topic_partition
        self.topic_id = log.topic_id
        self.rules = rules
        self.min_insync_replicas = min_insync_replicas
        self.leader = -1
        self.leader_epoch = NO_LEADER_EPOCH
        self.is_leader = False
        self.leading_since_epoch = NO_LEADER_EPOCH
        """The epoch since which this broker leads without interruption: nothing it appended since then was truncated."""
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.adding: tuple[int, ...] = ()
        """Those that a reassignment adds."""
        self.partition_epoch = -1
        self.leader_throttled = self.follower_throttled = False
        """Listed in `leader.replication.throttled.replicas` or the follower's list: rate-limited while out of sync (KIP-73)."""
        self.leadership: Leadership | None = None
        """Follower positions and ISR. None unless this broker leads and the partition has other replicas."""
        self.replication = replication
        self._verifying: dict[int, object] = {}
        """By producer id: the guard of a question to the transaction coordinator that is under way."""
        self._broker_id = broker_id
        self._internal = log.topic_partition.topic in INTERNAL_TOPICS
        self._offline = False
        self._logged_corruption: str | None = None
        """The corruption logged last. Consumers retry the same read many times a second."""
        self.on_progress = on_progress
        self._on_failure = on_failure
        self._flushes = flushes
        self.held_offset: int | None = None
        """The first offset that may not be acknowledged before a flush has ended. None: no flush is awaited."""
        self.storage_errors = StorageErrors(self)
        self.traffic: TopicTraffic | None = None
        """Only with metrics."""

    # Role

    def take_role(self, image: PartitionImage) -> None:
        """Apply the controller's decision: lead a new epoch, follow, or keep the role with another ISR."""
        was_leader, previous_epoch = self.is_leader, self.leader_epoch
        if previous_epoch == image.leader_epoch and image.partition_epoch < self.partition_epoch:
            return  # an AlterPartition response overtook this LeaderAndIsr request
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch
        self.isr = image.isr
        self.replicas = image.replicas
        self.adding = image.adding
        self.is_leader = image.leader == self._broker_id
        self._verifying.clear()
        if self._offline:
            self.leadership = None
            return
        if self.is_leader:
            is_new = not was_leader or previous_epoch != image.leader_epoch
            if not was_leader:
                self.leading_since_epoch = image.leader_epoch
            if is_new:
                self.log.epochs.assign(image.leader_epoch, self.log.log_end_offset)
                followed = not was_leader and previous_epoch != NO_LEADER_EPOCH
                if followed and self.owes_flush and self.held_offset is None and self._flushes is not None:
                    # The last flush as follower has not ended. (Records found at startup were acknowledged before.)
                    self.held_offset = self.log.recovery_point
                    self._flushes.flush_now(self)
            self._lead(image, is_new)
            self.advance_high_watermark()
        else:
            self.leadership = None
        self._role_changed()

    def _lead(self, image: PartitionImage, is_new: bool) -> None:
        replication, leadership = self.replication, self.leadership
        if image.replicas == (self._broker_id,):
            self.leadership = None
        elif leadership is not None and not is_new:
            leadership.ordered(image.replicas, image.isr, image.partition_epoch, replication.monotonic_ms())
        else:
            self.leadership = Leadership(
                self._broker_id,
                image.leader_epoch,
                self.log.log_end_offset if is_new else self.log.epochs.start_of(image.leader_epoch, self.log.log_end_offset),
                image.replicas,
                image.isr,
                image.partition_epoch,
                replication.monotonic_ms(),
                lag_time_max_ms=replication.lag_time_max_ms,
                min_isr=self.min_insync_replicas,
                is_alive=replication.is_alive,
            )

    def configure(self, rules: Rules, min_insync_replicas: int) -> None:
        """Apply changed topic settings. The log gets its own separately."""
        self.rules = rules
        self.min_insync_replicas = min_insync_replicas
        if self.leadership is not None:
            self.leadership.min_isr = min_insync_replicas
            self.advance_high_watermark()

    def resign(self) -> None:
        """Give up the role. Waiting requests are answered with NOT_LEADER_OR_FOLLOWER."""
        self.leader = -1
        self.is_leader = False
        self.leadership = None
        self._role_changed()

    def go_offline(self) -> None:
        self._offline = True
        self.leadership = None
        self._role_changed()

    def _role_changed(self) -> None:
        self.on_progress(self.topic_partition)
        self.on_progress(self)

    @property
    def is_added(self) -> bool:
        """Whether a reassignment adds the replica on this broker."""
        return self._broker_id in self.adding

    @property
    def is_offline(self) -> bool:
        return self._offline

    def check_leader(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """Require that this broker leads the partition, in the epoch that the client names (R08)."""
        self.check_replica(current_leader_epoch)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.leader} leads {self.topic_partition}")

    def check_leader_or_follower(self, current_leader_epoch: int) -> None:
        """Require that this broker leads or follows, in the epoch that the client names (R19)."""
        self.check_replica(current_leader_epoch)
        if self.leader < 0:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} has no leader")

    def check_replica(self, current_leader_epoch: int) -> None:
        """Require that the log is online, in the epoch that the client names, whoever leads."""
        if self._offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the data directory of {self.topic_partition} is offline")
        if current_leader_epoch != NO_LEADER_EPOCH and current_leader_epoch != self.leader_epoch:
            if current_leader_epoch < self.leader_epoch:
                raise KafkaError(
                    ErrorCode.FENCED_LEADER_EPOCH,
                    f"leader epoch {current_leader_epoch} of {self.topic_partition} is over, {self.leader_epoch} is current",
                )
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"leader epoch {current_leader_epoch} of {self.topic_partition} is not known yet, "
                f"the current one here is {self.leader_epoch}",
            )

    # Append

    def append(
        self,
        records: Buffer,
        required_acks: int,
        now_ms: int,
        *,
        transaction: VerifiedTransaction | None = None,
        checked: Checked | None = None,
    ) -> AppendInfo:
        """Append a producer's records as leader. Invalid records raise KafkaError, and nothing is appended.

        `transaction` is required for transactional records. `checked` is the validation result, if that ran in a worker; without
        it the records are validated here, and MuchToUnpack says that they need a worker.
        """
        if self._internal:
            # Coordinators trust what they read there. Kafka admits clients with the id __admin_client.
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{self.topic_partition} belongs to an internal topic")
        if self._offline or not self.is_leader:
            self.check_leader()
        if required_acks == ACKS_ALL and len(self.isr) < self.min_insync_replicas and self.is_under_min_isr:
            raise self._not_enough_replicas()
        if checked is None:
            checked = check(records, self.rules, now_ms, True, UNPACKED_BYTES_HERE)
        if transaction is None and checked.batches[0].attributes & TRANSACTIONAL_BIT:
            raise KafkaError(
                ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records came without a transactional id"
            )
        try:
            info = self.log.append(
                checked,
                self.leader_epoch,
                now_ms,
                verified=transaction is not None,
                bumps_epochs=transaction is not None and transaction.bumps_epochs,
            )
        except OSError as error:
            raise self.failed(error) from error
        self._appended(info, now_ms)
        return info

    def append_own(
        self,
        records: Sequence[tuple[bytes, bytes | None]],
        now_ms: int,
        *,
        codec: int = NONE,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
    ) -> AppendInfo:
        """Append a coordinator's keys and values as one batch, as leader, as with acks=all. With a producer id they are part of
        that producer's transaction."""
        if self._offline or not self.is_leader:
            self.check_leader()
        if len(self.isr) < self.min_insync_replicas and self.is_under_min_isr:
            raise self._not_enough_replicas()
        rules = self.rules
        batch = own_batch(records, now_ms, codec, producer_id, producer_epoch)
        if (
            batch.bytes > rules.max_message_bytes
            or rules.timestamp_type != CREATE_TIME
            or rules.compression not in (PRODUCER, codec)
        ):
            # Too large, which is refused, or to be converted to the topic's timestamp type or codec.
            batch = check(batch.buffer, rules, now_ms, from_client=False)
        try:
            info = self.log.append(batch, self.leader_epoch, now_ms, from_client=False)
        except OSError as error:
            raise self.failed(error) from error
        self._appended(info, now_ms)
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
        """Append the marker that ends a producer's transaction, as leader (T12). It is effective once committed."""
        self.check_leader()
        if self.is_under_min_isr:
            raise self._not_enough_replicas()
        with self.storage_errors:
            info = self.log.append_marker(
                producer_id,
                producer_epoch,
                commit=commit,
                coordinator_epoch=coordinator_epoch,
                leader_epoch=self.leader_epoch,
                now_ms=now_ms,
                transaction_version=transaction_version,
            )
        self._verifying.pop(producer_id, None)
        self._appended(info, now_ms)
        return info

    def _appended(self, info: AppendInfo, now_ms: int) -> None:
        """What follows every append of a leader."""
        self.after_write(info, now_ms)
        if self.traffic is not None:
            self.traffic.appended(info)
        self.advance_high_watermark()
        if self.leadership is not None:
            self.on_progress(self)

    def _not_enough_replicas(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"ISR of {self.topic_partition} has {len(self.isr)} replicas, min.insync.replicas={self.min_insync_replicas}",
        )

    def delete_records(self, offset: int) -> int:
        """Delete the records before `offset` (-1: before the high watermark), as leader. Returns the new log start offset."""
        self.check_leader()
        # An empty cleanup.policy (Kafka 4) retains everything but allows this.
        if self.log.config.compacted and not self.log.config.deletes:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"records of {self.topic_partition} cannot be deleted: its cleanup.policy is compact alone",
            )
        with self.storage_errors:
            self.log.advance_log_start(self.log.high_watermark if offset == NO_OFFSET else offset)
        self.on_progress(self.topic_partition)
        return self.log.log_start_offset

    # Transaction verification

    def start_verification(self, producer_id: int) -> object:
        """Returns a guard for a question to the transaction coordinator. A marker of the producer or a role change voids it."""
        return self._verifying.setdefault(producer_id, object())

    def end_verification(self, producer_id: int, guard: object, *, keep: bool) -> bool:
        """Whether the guard is still valid. `keep` leaves it for requests that verify the same producer concurrently."""
        holds = self._verifying.get(producer_id) is guard
        if holds and not keep:
            del self._verifying[producer_id]
        return holds

    # Flush before acknowledgement (F14)

    def after_write(self, info: AppendInfo, now_ms: int) -> None:
        """Request the flushes that an append makes due."""
        log = self.log
        if info.rolled and self._flushes is not None:
            self._flushes.request(self)
        if log.unflushed_messages >= log.flush_messages:
            self._hold(info, now_ms)

    def _hold(self, info: AppendInfo, now_ms: int) -> None:
        """Hold the acknowledgement until a flush has ended. A follower acknowledges with its next fetch: the fetcher looks at
        `owes_flush` before."""
        if self._flushes is None:
            with self.storage_errors:
                self.log.flush(now_ms)
        elif self.is_leader and self.held_offset is None:
            self.held_offset = info.first_offset
            self._flushes.flush_now(self)

    @property
    def owes_flush(self) -> bool:
        """Whether a flush has to end before the records at the log end may be acknowledged."""
        log = self.log
        return (
            log.flush_messages != INT64_MAX
            and log.unflushed_messages >= log.flush_messages
            and self._flushes is not None
            and not (self._offline or log.closed)
        )

    def flush_ended(self) -> bool:
        """A flush started by `flush_now` has ended. True: records appended meanwhile need another one."""
        log = self.log
        again = not self._offline and not log.closed and log.unflushed_messages >= log.flush_messages
        self.held_offset = log.recovery_point if again else None
        if self.is_leader and not self._offline:
            self.advance_high_watermark()
        self.on_progress(self.topic_partition)
        return again

    def awaits(self, acks: int, end_offset: int) -> bool:
        """Whether records before `end_offset` cannot be acknowledged yet: with acks=all while they are not committed, with acks=1
        while they wait for a flush."""
        if acks == ACKS_ALL:
            return self.log.high_watermark < end_offset
        return self.held_offset is not None and self.held_offset < end_offset

    # Watermarks

    @property
    def low_watermark(self) -> int:
        """The smallest log start offset of all live replicas."""
        start = self.log.log_start_offset
        return start if self.leadership is None else self.leadership.low_watermark(start)

    @property
    def epoch_start_offset(self) -> int:
        """The log end offset when this leader epoch began; 0 for a partition without followers."""
        return self.leadership.epoch_start_offset if self.leadership is not None else 0

    @property
    def is_under_min_isr(self) -> bool:
        """Too few in-sync replicas for acks=all (F49). As in Kafka, no more are required than the partition has replicas."""
        leadership = self.leadership
        if leadership is not None:
            return leadership.is_under_min_isr
        return len(self.isr) < min(self.min_insync_replicas, len(self.replicas))

    def advance_high_watermark(self) -> None:
        log, leadership = self.log, self.leadership
        committed = log.log_end_offset if self.held_offset is None else min(log.log_end_offset, self.held_offset)
        if leadership is not None:
            committed = leadership.high_watermark(committed, self.replication.monotonic_ms())
        elif len(self.isr) > 1:
            return
        if committed > log.high_watermark:
            log.high_watermark = committed
            self.on_progress(self.topic_partition)

    # Read

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool, here: bool = True) -> ReadInfo:
        """As `Log.read`. An I/O error is KAFKA_STORAGE_ERROR; corruption is logged."""
        try:
            return self.log.read(offset, max_bytes, end_offset, min_one_batch, here)
        except OSError as error:
            raise self.failed(error) from error
        except KafkaError as error:
            if error.code == ErrorCode.CORRUPT_MESSAGE and error.detail != self._logged_corruption:
                self._logged_corruption = error.detail
                logger.error(
                    "Corrupt log of %s, consumers cannot read past offset %d: %s", self.topic_partition, offset, error.detail
                )
            raise

    def read_past_empty(self, info: ReadInfo, max_bytes: int, end_offset: int, min_one_batch: bool) -> ReadInfo:
        with self.storage_errors:
            return self.log.read_past_empty(info, max_bytes, end_offset, min_one_batch)

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions that overlap a range of offsets (T02)."""
        with self.storage_errors:
            return self.log.aborted(start_offset, end_offset)

    def divergence(self, last_fetched_epoch: int, fetch_offset: int) -> OffsetAndEpoch | None:
        """Where the fetcher's log diverges from this one; None if (last fetched epoch, fetch offset) is on it (R10)."""
        end = self.log.end_offset_for_epoch(last_fetched_epoch)
        if end.offset < 0 or end.leader_epoch < 0:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE, f"leader epoch {last_fetched_epoch} of {self.topic_partition} is unknown"
            )
        if end.leader_epoch < last_fetched_epoch or end.offset < fetch_offset:
            return end
        return None

    def offset_for_timestamp(self, timestamp_ms: int, start_offset: int = 0) -> OffsetByTime | None:
        """As `Log.offset_for_timestamp`. Unfinished: the rest of the search needs a worker (`storage.time_lookup`)."""
        with self.storage_errors:
            return self.log.offset_for_timestamp(timestamp_ms, start_offset, UNPACKED_BYTES_HERE)

    def offset_of_max_timestamp(self) -> OffsetByTime | None:
        """As `Log.offset_of_max_timestamp`. Unfinished: as above."""
        with self.storage_errors:
            return self.log.offset_of_max_timestamp(UNPACKED_BYTES_HERE)

    def failed(self, error: OSError) -> KafkaError:
        """Take the data directory offline. Returns the error for the client."""
        self._on_failure(self.data_dir, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"I/O error in the log of {self.topic_partition}: {error}")
