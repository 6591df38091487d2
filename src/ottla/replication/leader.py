"""The leader's rules for one partition in one leader epoch: who follows how closely, who is in sync, and what is committed.

Owns the positions of followers, the in-sync replicas (ISR) as the controller last confirmed them, the one change of them that may
be under way, and the high watermark they allow. Never reads or writes a log, never sends: the shell tells what happened, with the
monotonic time, and performs what is returned.

1. The high watermark is the smallest log end of the maximal ISR: the confirmed one and the one proposed, together (R02). A
   follower that keeps up and only waits to be taken in counts too, or it would chase the end forever. It never goes back.
2. Nothing counts of a follower that it did not say in this epoch: at its start all positions are unknown, and the high watermark
   stands until every in-sync replica has fetched (Kip320.tla).
3. While fewer replicas are in sync than `min.insync.replicas` asks for, nothing that is written now gets committed (KIP-966,
   R13), as in Kafka 3.7 and later. What former leaders wrote may be: every acknowledged record is among it, and a leader that is
   left alone has to find out again how much that is (Kafka does not show the rest before enough are in sync; without eligible
   leader replicas there is nobody whom that would protect). A topic with fewer replicas is asked for all it has.
4. A follower joins the ISR once its log reaches both the high watermark and the offset where this epoch began (R03), and its
   broker is alive. It leaves if it was not at the log end within `replica.lag.time.max.ms`: being there means to reach now the
   end that the log had at its fetch before (R14).
5. One change of the ISR at a time. What the controller answers counts only for the change it was asked for; after an answer that
   leaves the outcome open, the change stays under way until the controller says what holds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ottla.errors import ErrorCode
from ottla.types import NO_OFFSET

_NOT_APPLIED: Final = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
"""The controller says for certain that nothing was changed."""

_REFUSED_MS: Final = 500
"""A replica that stops, or has just come back, is not proposed again with each of its fetches."""

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
"""What this leader knows is out of date: an order of the controller is on its way."""


@dataclass(frozen=True, slots=True)
class IsrProposal:
    """What the leader asks the controller for (AlterPartition)."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    """Of the replicas in `isr`, as they said in their fetches; -1 where unknown."""


class Follower:
    """What the leader knows of one follower."""

    __slots__ = (
        "broker_epoch",
        "caught_up_ms",
        "fetch_end_offset",
        "fetch_ms",
        "log_end_offset",
        "log_start_offset",
        "not_before_ms",
    )

    def __init__(self, caught_up_ms: int | None) -> None:
        self.log_end_offset = NO_OFFSET
        self.log_start_offset = NO_OFFSET
        self.fetch_ms = 0
        self.fetch_end_offset = NO_OFFSET
        """Where the leader's log ended at the last fetch, and when that was."""
        self.caught_up_ms = caught_up_ms
        """When it was last at the end of the log; None: never yet."""
        self.broker_epoch = -1
        self.not_before_ms = 0
        """When it may be proposed again, after the controller refused it."""

    def fetched(self, offset: int, log_start_offset: int, leader_end_offset: int, broker_epoch: int, now_ms: int) -> None:
        if broker_epoch > self.broker_epoch >= 0:
            # Another life, which may have lost what the former one had: nothing that one fetched speaks for it (KIP-903).
            self.caught_up_ms, self.fetch_end_offset = None, NO_OFFSET
        if offset >= leader_end_offset:
            self.caught_up_ms = now_ms
        elif self.fetch_end_offset >= 0 and offset >= self.fetch_end_offset:
            self.caught_up_ms = self.fetch_ms if self.caught_up_ms is None else max(self.caught_up_ms, self.fetch_ms)
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.fetch_ms = now_ms
        self.fetch_end_offset = leader_end_offset
        # One without a session at the moment says -1: it is who it was, until it says otherwise.
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
        """As the controller confirmed it."""
        self.pending: IsrProposal | None = None
        self.followers: dict[int, Follower] = {}
        self.replicas: tuple[int, ...] = ()
        self._min_isr = min_isr
        self._is_alive = is_alive
        self._maximal: frozenset[int] = frozenset(isr)
        self._assign(replicas, now_ms)

    # What holds

    @property
    def maximal_isr(self) -> frozenset[int]:
        return self._maximal

    @property
    def min_isr(self) -> int:
        """What `min.insync.replicas` means for this partition: not more than it has replicas."""
        return min(self._min_isr, len(self.followers) + 1)

    @min_isr.setter
    def min_isr(self, count: int) -> None:
        self._min_isr = count

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.min_isr

    def high_watermark(self, log_end_offset: int, now_ms: int) -> int:
        """How far the log is committed, as far as this epoch's fetches show; NO_OFFSET if they show nothing (rules 1 to 3)."""
        lowest = min(log_end_offset, self.epoch_start_offset) if self.is_under_min_isr else log_end_offset
        maximal = self._maximal
        for replica, follower in self.followers.items():
            if follower.log_end_offset < lowest and (
                replica in maximal
                or (follower.keeps_up(log_end_offset, now_ms, self.lag_time_max_ms) and self._is_alive(replica))
            ):
                lowest = follower.log_end_offset
        return lowest

    def low_watermark(self, log_start_offset: int) -> int:
        """Below it no living replica has records any more."""
        lowest = log_start_offset
        for replica, follower in self.followers.items():
            if follower.log_start_offset < lowest and self._is_alive(replica):
                lowest = follower.log_start_offset
        return lowest

    # What happens

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
        """A follower asks for the records from `offset` on, so it has all before. Perhaps it is to be taken into the ISR.

        Call this only for a fetch in the current epoch whose position is on this log (R08, R10); `replica` must be a follower.
        """
        follower = self.followers[replica]
        if 0 <= broker_epoch < follower.broker_epoch:
            return None  # sent by a former life: it says nothing of what the present one has
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
        """Whoever has not been at the log end for too long leaves the ISR."""
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
        """The controller answered a proposal: this is the ISR now. False: the answer is out of date and counts for nothing."""
        if proposal is not self.pending or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self._commit(isr)
        return True

    def refused(self, proposal: IsrProposal, error: ErrorCode, now_ms: int = 0) -> bool:
        """The controller refused a proposal. True: ask again, its outcome is open."""
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
        """The controller's order for the epoch this leader is in already. False: it is older than what is known."""
        if partition_epoch < self.partition_epoch:
            return False
        self.partition_epoch = partition_epoch
        self._commit(isr)
        self._assign(replicas, now_ms)
        return True

    def _propose(self, isr: tuple[int, ...]) -> IsrProposal:
        epochs = tuple(self.followers[replica].broker_epoch if replica in self.followers else -1 for replica in isr)
        self.pending = IsrProposal(self.leader_epoch, self.partition_epoch, isr, epochs)
        self._maximal = frozenset(self.isr).union(isr)
        return self.pending

    def _commit(self, isr: Sequence[int]) -> None:
        self.isr = tuple(isr)
        self.pending = None
        self._maximal = frozenset(isr)

    def _assign(self, replicas: Sequence[int], now_ms: int) -> None:
        known = self.followers
        self.replicas = tuple(replicas)
        self.followers = {
            replica: known.get(replica) or Follower(now_ms if replica in self.isr else None)
            for replica in replicas
            if replica != self.broker_id
        }
