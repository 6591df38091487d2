"""The rules of a leader for one partition in one leader epoch: follower positions, ISR and high watermark.

Owns the positions of the followers, the ISR that the controller last confirmed, and the one ISR change that may be pending. The
broker reports events with the monotonic time, and sends the proposals that are returned.

1. The high watermark is the smallest log end offset of the maximal ISR, which is the confirmed ISR and the proposed one together
   (R02). A follower that keeps up and waits to join the ISR counts too; otherwise it might never catch up. It never decreases.
2. Positions are those that followers reported in this epoch. They are unknown when the epoch starts, and the high watermark does
   not advance before every in-sync replica has fetched (Kip320.tla).
3. While the ISR is smaller than `min.insync.replicas`, no record of this epoch is committed (KIP-966, R13), as in Kafka 3.7 and
   later. Records of earlier epochs may be: all acknowledged records are among them, and a leader that is left alone has to
   recover the high watermark. (Kafka does not advance it before enough replicas are in sync; without eligible leader replicas
   that protects nobody.) No more replicas are required than the partition has.
4. A follower joins the ISR once its log end offset reaches the high watermark and the start of this epoch (R03), and its broker
   is alive. It leaves if it was not caught up within `replica.lag.time.max.ms`. Caught up means to reach the log end offset that
   the leader had at the previous fetch of that follower (R14).
5. One ISR change at a time. A response of the controller counts only for the pending change. After a response that leaves the
   result open, the change stays pending until the controller says which ISR is valid.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.errors import ErrorCode
from ottla.types import NO_OFFSET

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The one value of `replica.selector.class` that has an effect."""

_NOT_APPLIED: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""Errors after which the ISR is certainly unchanged."""

_REFUSED_MS: Final = 500
"""How long a refused replica is not proposed again: it may be stopping or restarting."""

_WAIT_FOR_NEWS: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
"""Errors of an outdated leader: a LeaderAndIsr request is on its way."""


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """An ISR that the leader proposes to the controller (AlterPartition)."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    """The broker epochs of the replicas in `isr`, from their fetches; -1 if unknown."""


class Follower:
    """The state of one follower."""

    def __init__(self, caught_up_ms: int | None) -> None:
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.fetch_ms = 0
        self.fetch_end_offset = NO_OFFSET
        """The log end offset of the leader at the last fetch, and its time."""
        self.caught_up_ms = caught_up_ms
        """When the follower was last caught up; None: never."""
        self.broker_epoch = -1
        self.not_before_ms = 0
        """When the follower may be proposed again, after the controller refused it."""

    def fetched(self, offset: int, log_start_offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int) -> None:
        if broker_epoch > self.broker_epoch >= 0:
            # The broker restarted and may have lost records: earlier fetches do not count (KIP-903).
            self.caught_up_ms, self.fetch_end_offset = None, NO_OFFSET
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif self.fetch_end_offset >= 0 and offset >= self.fetch_end_offset:
            self.caught_up_ms = self.fetch_ms if self.caught_up_ms is None else max(self.caught_up_ms, self.fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.fetch_ms = now_ms
        self.fetch_end_offset = leader_end_offset
        # A broker without a ZooKeeper session sends -1: its last epoch stays valid.
        self.broker_epoch = max(self.broker_epoch, broker_epoch)

    def keeps_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        if self.log_end_offset == leader_end_offset:
            return True
        return self.caught_up_ms is not None and now_ms - self.caught_up_ms <= lag_time_max_ms


class Leadership:
    def __init__(
        self,
        broker_id: int,
        leader_epoch: int,
        epoch_start_offset: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        partition_epoch: int,
        now_ms: int,
        *,
        lag_time_max_ms: int,
        min_isr: int,
        is_alive: Callable[[int], bool] = lambda broker_id: True,
    ) -> None:
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.epoch_start_offset = epoch_start_offset
        self.partition_epoch = partition_epoch
        self.lag_time_max_ms = lag_time_max_ms
        self.isr = tuple(isr)
        """The ISR that the controller confirmed."""
        self.pending: IsrProposal | None = None
        self.followers: dict[int, Follower] = {}
        self.replicas: tuple[int, ...] = ()
        self._min_isr = min_isr
        self._is_alive = is_alive
        self.maximal_isr: frozenset[int] = frozenset(isr)
        self._assign(replicas, now_ms)

    # State

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas`, limited to the number of replicas."""
        return min(self._min_isr, len(self.followers) + 1)

    @min_isr.setter
    def min_isr(self, count: int) -> None:
        self._min_isr = count

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.min_isr

    def high_watermark(self, log_end_offset: int, now_ms: int) -> int:
        """The high watermark by the fetches of this epoch (rules 1 to 3); NO_OFFSET if it is unknown."""
        lowest = min(log_end_offset, self.epoch_start_offset) if self.is_under_min_isr else log_end_offset
        maximal = self.maximal_isr
        for replica, follower in self.followers.items():
            if follower.log_end_offset < lowest and (
                replica in maximal
                or (follower.keeps_up(log_end_offset, now_ms, self.lag_time_max_ms) and self._is_alive(replica))
            ):
                lowest = follower.log_end_offset
        return lowest

    def low_watermark(self, log_start_offset: int) -> int:
        """The smallest log start offset of the live replicas."""
        lowest = log_start_offset
        for replica, follower in self.followers.items():
            if follower.log_start_offset < lowest and self._is_alive(replica):
                lowest = follower.log_start_offset
        return lowest

    # Events

    def follower_fetched(
        self,
        replica: int,
        offset: int,
        log_start_offset: int,
        log_end_offset: int,
        high_watermark: int,
        now_ms: int,
        broker_epoch: int = -1,
    ) -> IsrProposal | None:
        """A follower fetches from `offset`, so it has all records before. Returns a proposal if it should join the ISR.

        Only for a fetch in the current epoch whose position is in this log (R08, R10).
        """
        follower = self.followers[replica]
        if 0 <= broker_epoch < follower.broker_epoch:
            return None  # sent before the broker restarted
        follower.fetched(offset, log_start_offset, log_end_offset, broker_epoch, now_ms)
        if (
            replica in self.isr
            or self.pending is not None
            or offset < high_watermark
            or offset < self.epoch_start_offset
            or now_ms < follower.not_before_ms
            or not self._is_alive(replica)
        ):
            return None
        return self._propose((*self.isr, replica))

    def shrink(self, log_end_offset: int, now_ms: int) -> IsrProposal | None:
        """Propose an ISR without the followers that lag for too long."""
        if self.pending is not None:
            return None
        slow = self.out_of_sync(log_end_offset, now_ms)
        if not slow:
            return None
        return self._propose(tuple(replica for replica in self.isr if replica not in slow))

    def out_of_sync(self, log_end_offset: int, now_ms: int) -> list[int]:
        return [
            replica
            for replica in self.isr
            if replica != self.broker_id
            and (
                (follower := self.followers.get(replica)) is None
                or not follower.keeps_up(log_end_offset, now_ms, self.lag_time_max_ms)
            )
        ]

    def confirmed(self, proposal: IsrProposal, isr: Sequence[int], leader_epoch: int, partition_epoch: int) -> bool:
        """The controller accepted a proposal. False: the response is out of date and has no effect."""
        if proposal is not self.pending or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self._commit(isr)
        return True

    def refused(self, proposal: IsrProposal, error: ErrorCode, now_ms: int = 0) -> bool:
        """The controller refused a proposal. True: the result is open, send it again."""
        if proposal is not self.pending:
            return False
        if error in _NOT_APPLIED:
            for replica in proposal.isr:
                if replica not in self.isr and replica in self.followers:
                    self.followers[replica].not_before_ms = now_ms + _REFUSED_MS
            self._commit(self.isr)
            return False
        return error not in _WAIT_FOR_NEWS

    def ordered(self, replicas: Sequence[int], isr: Sequence[int], partition_epoch: int, now_ms: int) -> bool:
        """A LeaderAndIsr request for the current leader epoch. False: it is older than the known partition epoch."""
        if partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self._commit(isr)
        self._assign(replicas, now_ms)
        return True

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        epochs = tuple(self.followers[replica].broker_epoch if replica in self.followers else -1 for replica in isr)
        self.pending = IsrProposal(self.leader_epoch, self.partition_epoch, isr, epochs)
        self.maximal_isr = frozenset(self.isr).union(isr)
        return self.pending

    def _commit(self, isr: Sequence[int]) -> None:
        self.isr = tuple(isr)
        self.pending = None
        self.maximal_isr = frozenset(isr)

    def _assign(self, replicas: Sequence[int], now_ms: int) -> None:
        known = self.followers
        self.replicas = tuple(replicas)
        self.followers = {
            replica: known.get(replica) or Follower(now_ms if replica in self.isr else None)
            for replica in replicas
            if replica != self.broker_id
        }


def closest_replica(leadership: Leadership, rack: str, offset: int, rack_of: Callable[[int], str | None]) -> int | None:
    """The in-sync follower in the consumer's rack with the offset and the largest log end offset; None: the leader (R19)."""
    if rack_of(leadership.broker_id) == rack:
        return None
    best, best_end = None, NO_OFFSET
    for replica in leadership.isr:
        follower = leadership.followers.get(replica)
        if follower is None or rack_of(replica) != rack:
            continue
        if follower.log_start_offset <= offset <= follower.log_end_offset and follower.log_end_offset > best_end:
            best, best_end = replica, follower.log_end_offset
    return best
