"""One replica on this broker: its log, its role, and how far consumers may read.

Owns the role in one partition as the controller gives it, and the high watermark. Never waits: a change that others may be
waiting for is reported to `on_progress`, under the name of the partition if consumers can see it or its leader changed, and under
the partition itself if there is more for followers to fetch.

1. Only the leader appends what producers send; its epoch stamps every batch. A follower appends what the leader has.
2. The high watermark is the smallest log end of the in-sync replicas (`replication.leader` has the rules). With one replica that
   is its own log end, and nothing is reckoned. A follower's is the leader's, as far as its own log reaches.
3. A request that names a leader epoch is served only if it is the current one (KIP-320).
4. An I/O error takes the whole data directory offline; the partition then answers KAFKA_STORAGE_ERROR.
5. What `flush.messages` wants on the disk first is neither acknowledged nor seen before it is there. The flush runs elsewhere;
   what is appended meanwhile waits for it, and is flushed together if it needs to be (F14). A follower does not ask for more
   before it has flushed what it owes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from ottla.broker.replicas.replication_context import ALONE, Replication
from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import ErrorCode, KafkaError
from ottla.records.batch import TRANSACTIONAL_BIT
from ottla.records.compression import NONE
from ottla.records.own import own_batch
from ottla.records.validate import CREATE_TIME, PRODUCER, UNPACKED_BYTES_HERE, Checked, Rules, check
from ottla.replication.leader import IsrProposal, Leadership
from ottla.storage.config import INT64_MAX
from ottla.storage.log import AppendInfo, Log, OffsetByTime, ReadInfo, UnexpectedOffset
from ottla.types import NO_LEADER_EPOCH, NO_OFFSET, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, Buffer, OffsetAndEpoch

if TYPE_CHECKING:
    from ottla.cluster.image import PartitionImage
    from ottla.storage.data_dir import DataDir
    from ottla.storage.txn_index import AbortedTxn

logger = logging.getLogger(__name__)

ACKS_ALL: Final = -1


@dataclass(frozen=True, slots=True)
class Transaction:
    """What a partition has to know of the transaction that records are written in."""

    verified: bool
    """Its coordinator says that the partition is part of it. Needed for the first records only (T10)."""
    bumps_epochs: bool = False
    """Of transaction version 2: its epoch is its own, and its sequences begin at 0."""


NO_TRANSACTION: Final = Transaction(verified=False)


class Partition:
    __slots__ = (
        "_broker_id",
        "_flush_now",
        "_flush_requested",
        "_internal",
        "_offline",
        "_on_failure",
        "_on_progress",
        "_replication",
        "_told",
        "_verifying",
        "data_dir",
        "follower_throttled",
        "held_offset",
        "is_leader",
        "isr",
        "leader",
        "leader_epoch",
        "leader_throttled",
        "leadership",
        "log",
        "min_insync_replicas",
        "partition_epoch",
        "reign",
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
        on_progress: Callable[[Hashable], None],
        on_failure: Callable[[DataDir, OSError], None],
        flush_requested: dict[Partition, None],
        replication: Replication = ALONE,
        flush_now: Callable[[Partition], None] | None = None,
    ) -> None:
        """`flush_now`: to have it flushed and told so by `flush_ended`; without it a flush is waited for."""
        self.log = log
        self.data_dir = data_dir
        self.topic_partition = log.topic_partition
        self.topic_id = log.topic_id
        self.rules = rules
        self.min_insync_replicas = min_insync_replicas
        self.leader = -1
        self.leader_epoch = NO_LEADER_EPOCH
        self.is_leader = False
        self.reign = NO_LEADER_EPOCH
        """The epoch since which this broker leads without a break: what it appended since then nobody has cut off."""
        self.isr: tuple[int, ...] = ()
        self.replicas: tuple[int, ...] = ()
        self.partition_epoch = -1
        self.leader_throttled = self.follower_throttled = False
        """Replication of this replica, as leader or as follower, has to keep to a rate while it is not in sync (KIP-73)."""
        self.leadership: Leadership | None = None
        """Of a leader that has followers."""
        self._replication = replication
        self._verifying: dict[int, object] = {}
        """Guards of producers about whose transactions their coordinator is being asked."""
        self._broker_id = broker_id
        self._internal = log.topic_partition.topic in INTERNAL_TOPICS
        self._offline = False
        self._told: str | None = None
        """The damage that was logged last: who reads tries again and again."""
        self._on_progress = on_progress
        self._on_failure = on_failure
        self._flush_requested = flush_requested
        self._flush_now = flush_now
        self.held_offset: int | None = None
        """From here on records wait for a flush. None: none do."""

    # Role

    def take_role(self, image: PartitionImage) -> None:
        """Become what the controller decided: leader of a new epoch, follower, or the same as before with another ISR."""
        was_leader, former_epoch = self.is_leader, self.leader_epoch
        if former_epoch == image.leader_epoch and image.partition_epoch < self.partition_epoch:
            return  # the answer to a change of the ISR was faster than the order
        self.leader = image.leader
        self.leader_epoch = image.leader_epoch
        self.partition_epoch = image.partition_epoch
        self.isr = image.isr
        self.replicas = image.replicas
        self.is_leader = image.leader == self._broker_id
        self._verifying.clear()
        if self._offline:
            self.leadership = None
            return
        if self.is_leader:
            is_new = not was_leader or former_epoch != image.leader_epoch
            if not was_leader:
                self.reign = image.leader_epoch
            if is_new:
                self.log.start_epoch(image.leader_epoch, self.log.log_end_offset)
                followed = not was_leader and former_epoch != NO_LEADER_EPOCH
                if followed and self.owes_flush and self.held_offset is None and self._flush_now is not None:
                    # Its last flush has not ended. (What is found at a start has been acknowledged, and is not taken back.)
                    self.held_offset = self.log.recovery_point
                    self._flush_now(self)
            self._lead(image, is_new)
            self._advance_high_watermark()
        else:
            self.leadership = None
        # Those who wait on this partition must see that its leader or epoch changed.
        self._on_progress(self.topic_partition)
        self._on_progress(self)

    def _lead(self, image: PartitionImage, is_new: bool) -> None:
        replication, leadership = self._replication, self.leadership
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
        """The topic's settings are others now (the log has its own already)."""
        self.rules = rules
        self.min_insync_replicas = min_insync_replicas
        if self.leadership is not None:
            self.leadership.min_isr = min_insync_replicas
            self._advance_high_watermark()

    def replace_log(self, log: Log, data_dir: DataDir) -> None:
        """The replica lies in another directory now. Its log has the same records."""
        self.log = log
        self.data_dir = data_dir

    def stand_down(self) -> None:
        """Have no role any more: those who wait look for the leader elsewhere."""
        self.leader = -1
        self.is_leader = False
        self.leadership = None
        self._on_progress(self.topic_partition)
        self._on_progress(self)

    def go_offline(self) -> None:
        self._offline = True
        self.leadership = None
        self._on_progress(self.topic_partition)
        self._on_progress(self)

    @property
    def is_offline(self) -> bool:
        return self._offline

    def check_leader(self, current_leader_epoch: int = NO_LEADER_EPOCH) -> None:
        """That this broker leads the partition, in the epoch the client believes in (R08)."""
        self._check_epoch(current_leader_epoch)
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"broker {self.leader} leads {self.topic_partition}")

    def check_replica(self, current_leader_epoch: int) -> None:
        """That its log is here, in the epoch the client believes in, whoever leads."""
        self._check_epoch(current_leader_epoch)

    def check_follows(self, current_leader_epoch: int) -> None:
        """That this broker has a role in the partition, be it as follower, in the epoch the client believes in (R19)."""
        self._check_epoch(current_leader_epoch)
        if self.leader < 0:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"nobody leads {self.topic_partition}")

    def _check_epoch(self, current_leader_epoch: int) -> None:
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

    # Write

    def append(
        self,
        records: Buffer,
        required_acks: int,
        now_ms: int,
        *,
        transaction: Transaction | None = None,
        checked: Checked | None = None,
    ) -> AppendInfo:
        """Append what a producer sent, as leader. The records are checked; KafkaError means that nothing was kept.

        Transactional records need to say of which transaction they are. MuchToUnpack: they are to be `checked` elsewhere.
        """
        if self._internal:
            # Coordinators believe what they read there. Kafka lets clients in that call themselves __admin_client.
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{self.topic_partition} is the brokers' own")
        if self._offline or not self.is_leader:
            self.check_leader()
        if required_acks == ACKS_ALL and len(self.isr) < self.min_insync_replicas and self.is_under_min_isr:
            raise self._not_enough_replicas()
        if checked is None:
            checked = check(records, self.rules, now_ms, True, UNPACKED_BYTES_HERE)
        if transaction is None:
            if checked.batches[0].attributes & TRANSACTIONAL_BIT:
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
                verified=transaction.verified,
                bumps_epochs=transaction.bumps_epochs,
            )
            self._after_append(info, now_ms)
        except OSError as error:
            raise self.failed(error) from error
        self._advance_high_watermark()
        if self.leadership is not None:
            self._on_progress(self)
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
        """Append a coordinator's keys and values as one batch, as leader, if enough replicas are in sync. With a producer id they
        are part of its transaction."""
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
            # Refused, or changed into what the topic was told to keep.
            batch = check(batch.buffer, rules, now_ms, from_client=False)
        try:
            info = self.log.append(batch, self.leader_epoch, now_ms, from_client=False)
            self._after_append(info, now_ms)
        except OSError as error:
            raise self.failed(error) from error
        self._advance_high_watermark()
        if self.leadership is not None:
            self._on_progress(self)
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
        if self.is_under_min_isr:
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
            raise self.failed(error) from error
        self._verifying.pop(producer_id, None)
        self._advance_high_watermark()
        if self.leadership is not None:
            self._on_progress(self)
        return info

    # Asking whether a transaction may write here

    def start_verification(self, producer_id: int) -> object:
        """The coordinator is about to be asked. The guard is void once a marker of the producer, or another role, has come."""
        return self._verifying.setdefault(producer_id, object())

    def end_verification(self, producer_id: int, guard: object, *, keep: bool) -> bool:
        """Whether the guard still holds. `keep`: for others who ask at the same time."""
        holds = self._verifying.get(producer_id) is guard
        if holds and not keep:
            del self._verifying[producer_id]
        return holds

    def _after_append(self, info: AppendInfo, now_ms: int) -> None:
        log = self.log
        if info.rolled:
            self._flush_requested[self] = None
        if log.unflushed_messages >= log.flush_messages:
            self._hold(info, now_ms)

    def _hold(self, info: AppendInfo, now_ms: int) -> None:
        """The settings ask that acknowledged records are on the disk (F14). A follower acknowledges with its next fetch: who
        fetches sees to it (`owes_flush`)."""
        if self._flush_now is None:
            self.log.flush(now_ms)
        elif self.is_leader and self.held_offset is None:
            self.held_offset = info.first_offset
            self._flush_now(self)

    @property
    def owes_flush(self) -> bool:
        """What was appended may not be acknowledged before it is flushed."""
        log = self.log
        return (
            log.flush_messages != INT64_MAX
            and log.unflushed_messages >= log.flush_messages
            and self._flush_now is not None
            and not (self._offline or log.closed)
        )

    def flush_ended(self) -> bool:
        """The flush that was asked for is over. True: another one is needed, for what came meanwhile."""
        log = self.log
        again = not self._offline and not log.closed and log.unflushed_messages >= log.flush_messages
        self.held_offset = log.recovery_point if again else None
        if self.is_leader and not self._offline:
            self._advance_high_watermark()
        self._on_progress(self.topic_partition)
        return again

    def awaits(self, acks: int, end_offset: int) -> bool:
        """Whether records before `end_offset` cannot be acknowledged yet: to acks=all not before they are committed, to acks=1
        only if they have to be flushed before."""
        if acks == ACKS_ALL:
            return self.log.high_watermark < end_offset
        return self.held_offset is not None and self.held_offset < end_offset

    def _not_enough_replicas(self) -> KafkaError:
        return KafkaError(
            ErrorCode.NOT_ENOUGH_REPLICAS,
            f"{self.topic_partition} has {len(self.isr)} replicas in sync, min.insync.replicas={self.min_insync_replicas}",
        )

    @property
    def low_watermark(self) -> int:
        """Below it no living replica has records, as far as this leader knows."""
        start = self.log.log_start_offset
        return start if self.leadership is None else self.leadership.low_watermark(start)

    @property
    def epoch_start_offset(self) -> int:
        """Where the log ended when this leader took over; 0 where that makes no difference."""
        return self.leadership.epoch_start_offset if self.leadership is not None else 0

    @property
    def is_under_min_isr(self) -> bool:
        """Too few replicas are in sync for acks=all (F49). No more than there are is ever asked for, as with Kafka."""
        leadership = self.leadership
        if leadership is not None:
            return leadership.is_under_min_isr
        return len(self.isr) < min(self.min_insync_replicas, len(self.replicas))

    def _advance_high_watermark(self) -> None:
        log, leadership = self.log, self.leadership
        if leadership is None:
            # Alone: nobody else's position counts.
            if len(self.isr) <= 1 and log.high_watermark < log.log_end_offset:
                committed = log.log_end_offset if self.held_offset is None else self.held_offset
                if committed > log.high_watermark:
                    log.high_watermark = committed
                    self._on_progress(self.topic_partition)
            return
        end_offset = log.log_end_offset if self.held_offset is None else min(log.log_end_offset, self.held_offset)
        committed = leadership.high_watermark(end_offset, self._replication.monotonic_ms())
        if committed > log.high_watermark:
            log.high_watermark = committed
            self._on_progress(self.topic_partition)

    # Followers of this leader

    def check_follower(self, replica_id: int, broker_epoch: int = -1) -> None:
        """That a replica is one of this partition's, in its present life. It may hear of a reassignment before its leader."""
        leadership = self.leadership
        if leadership is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{self.topic_partition} has no followers")
        follower = leadership.followers.get(replica_id)
        if follower is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"broker {replica_id} is no replica of {self.topic_partition} in leader epoch {self.leader_epoch}",
            )
        if 0 <= broker_epoch < follower.broker_epoch:
            # What comes from a former life says nothing of what the present one has (KIP-903).
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"broker {replica_id} was restarted since: epoch {broker_epoch}, not {follower.broker_epoch}",
            )

    def follower_fetched(self, replica_id: int, offset: int, log_start_offset: int, broker_epoch: int) -> None:
        """A follower has all before `offset` of this log: so far its acknowledgement counts."""
        leadership, log = self.leadership, self.log
        assert leadership is not None
        now_ms = self._replication.monotonic_ms()
        follower = leadership.followers[replica_id]
        former_end, former_start = follower.log_end_offset, follower.log_start_offset
        proposal = leadership.follower_fetched(
            replica_id, offset, log_start_offset, log.log_end_offset, log.high_watermark, now_ms, broker_epoch
        )
        if offset != former_end:
            self._advance_high_watermark()
        if log_start_offset != former_start:
            self._on_progress(self.topic_partition)  # whoever deletes records waits for that
        if proposal is not None:
            self._replication.propose(self, proposal)

    def holds_back(self, replica_id: int) -> bool:
        """A throttled follower that is not in sync has to wait: too much was sent in the last seconds."""
        if not self.leader_throttled or replica_id in self.isr:
            return False
        return self._replication.leader_quota.exceeded(self._replication.monotonic_ms())

    def sent_to_follower(self, count: int) -> None:
        if self.leader_throttled:
            self._replication.leader_quota.record(count, self._replication.monotonic_ms())

    def shrink_isr(self) -> None:
        """Propose to go on without followers that do not keep up."""
        leadership, log = self.leadership, self.log
        if leadership is None:
            return
        proposal = leadership.shrink(log.log_end_offset, self._replication.monotonic_ms())
        if proposal is not None:
            self._replication.propose(self, proposal)
        else:
            # A follower that was waited for without being in sync may have fallen behind.
            self._advance_high_watermark()

    def isr_confirmed(self, proposal: IsrProposal, isr: tuple[int, ...], leader_epoch: int, partition_epoch: int) -> bool:
        """The controller answered. False: too late, the answer counts for nothing."""
        leadership = self.leadership
        if leadership is None or not leadership.confirmed(proposal, isr, leader_epoch, partition_epoch):
            return False
        self.isr, self.partition_epoch = leadership.isr, leadership.partition_epoch
        self._advance_high_watermark()
        self._on_progress(self.topic_partition)  # too few may be in sync now (R12)
        return True

    def isr_refused(self, proposal: IsrProposal, error: ErrorCode) -> bool:
        """The controller refused. True: ask again."""
        leadership = self.leadership
        return leadership is not None and leadership.refused(proposal, error, self._replication.monotonic_ms())

    # Following another leader

    def append_as_follower(
        self, records: Buffer, leader_high_watermark: int, leader_log_start_offset: int, now_ms: int
    ) -> AppendInfo | None:
        """Append what the leader sent, and know what the leader knows. KafkaError, UnexpectedOffset: nothing of it was kept."""
        log = self.log
        info: AppendInfo | None = None
        try:
            if len(records):
                try:
                    info = log.append_as_follower(records, now_ms)
                except UnexpectedOffset as found:  # another name than below: where it is compiled, a name has one type
                    is_empty = log.log_start_offset == log.log_end_offset
                    if not is_empty or not found.first_offset < log.log_end_offset <= found.last_offset:
                        raise
                    # The leader's log starts inside of a batch (DeleteRecords), which is the first that is sent. Batches stay
                    # whole: begin with it. The start of the log is set right below.
                    log.truncate_fully_and_start_at(found.first_offset, now_ms)
                    info = log.append_as_follower(records, now_ms)
                self._after_append(info, now_ms)
                if self.follower_throttled:
                    self._replication.follower_quota.record(len(records), self._replication.monotonic_ms())
            committed = min(leader_high_watermark, log.log_end_offset)
            if committed > log.high_watermark:
                log.high_watermark = committed
                self._on_progress(self.topic_partition)
            if leader_log_start_offset > log.log_start_offset:
                log.advance_log_start(min(leader_log_start_offset, log.high_watermark))
        except OSError as error:
            raise self.failed(error) from error
        return info

    def holds_itself_back(self, leader_high_watermark: int | None) -> bool:
        """As throttled follower, not to fetch now: too much came in the last seconds, and this is not in sync. (None: the leader
        has not said yet how far it is.)"""
        if leader_high_watermark is not None and leader_high_watermark <= self.log.log_end_offset:
            return False
        return self._replication.follower_quota.exceeded(self._replication.monotonic_ms())

    def truncate_to(self, offset: int, now_ms: int) -> bool:
        """As follower, forget what the leader does not have. True: the checkpoints vouch for more than is left."""
        log = self.log
        vouched = log.recovery_point
        try:
            log.truncate_to(offset, now_ms)
        except OSError as error:
            raise self.failed(error) from error
        return log.recovery_point < vouched

    def start_anew_at(self, offset: int, now_ms: int) -> None:
        """As follower: the leader has nothing of what is here, its log begins behind it."""
        try:
            self.log.truncate_fully_and_start_at(offset, now_ms)
        except OSError as error:
            raise self.failed(error) from error

    def delete_records(self, offset: int) -> int:
        """Forget all records below `offset` (-1: below the high watermark). Returns the new log start."""
        self.check_leader()
        # An empty policy keeps everything until somebody says otherwise (Kafka 4), and here somebody does.
        if self.log.config.compacted and not self.log.config.deletes:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"records of {self.topic_partition} cannot be deleted: its cleanup.policy is compact alone",
            )
        try:
            self.log.advance_log_start(self.log.high_watermark if offset == NO_OFFSET else offset)
        except OSError as error:
            raise self.failed(error) from error
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

    def read(self, offset: int, max_bytes: int, end_offset: int, min_one_batch: bool, here: bool = True) -> ReadInfo:
        try:
            return self.log.read(offset, max_bytes, end_offset, min_one_batch, here)
        except OSError as error:
            raise self.failed(error) from error
        except KafkaError as error:
            if error.code == ErrorCode.CORRUPT_MESSAGE and error.detail != self._told:
                self._told = error.detail
                logger.error("%s is damaged, consumers cannot go on at offset %d: %s", self.topic_partition, offset, error.detail)
            raise

    def read_past_empty(self, info: ReadInfo, max_bytes: int, end_offset: int, min_one_batch: bool) -> ReadInfo:
        try:
            return self.log.read_past_empty(info, max_bytes, end_offset, min_one_batch)
        except OSError as error:
            raise self.failed(error) from error

    def aborted(self, start_offset: int, end_offset: int) -> list[AbortedTxn]:
        """The aborted transactions of which records may lie in a range (T02)."""
        try:
            return self.log.aborted(start_offset, end_offset)
        except OSError as error:
            raise self.failed(error) from error

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

    def offset_for_timestamp(self, timestamp_ms: int, start_offset: int = 0) -> OffsetByTime | None:
        """Unfinished: there is more to look at than others should wait for (`storage.time_lookup`)."""
        try:
            return self.log.offset_for_timestamp(timestamp_ms, start_offset, UNPACKED_BYTES_HERE)
        except OSError as error:
            raise self.failed(error) from error

    def offset_of_max_timestamp(self) -> OffsetByTime | None:
        """Unfinished: likewise."""
        try:
            return self.log.offset_of_max_timestamp(UNPACKED_BYTES_HERE)
        except OSError as error:
            raise self.failed(error) from error

    def failed(self, error: OSError) -> KafkaError:
        """Its directory is not to be used any more; what a client hears of that."""
        self._on_failure(self.data_dir, error)
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"{self.topic_partition} cannot be read or written: {error}")
