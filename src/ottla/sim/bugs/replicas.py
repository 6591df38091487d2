"""Bugs of replication: the leader and its high watermark, the followers, the ISR."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ottla.broker.replicas import fetch_read, following, replica_fetcher
from ottla.broker.replicas.commit_wait import CommitWait
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partitions import Partitions
from ottla.broker.replicas.replica_logs import ReplicaLogs
from ottla.replication.follower import Truncation
from ottla.replication.leader import Leadership
from ottla.sim.bugs.registry import Patch, bug
from ottla.types import NO_OFFSET

# --- the leader and the high watermark


@bug(
    "the high watermark is the smallest end of the confirmed ISR, not of the maximal one",
    world="stories",
    first=56,
    seeds_max=123,
)
def isr_instead_of_maximal() -> list[Patch]:
    def high_watermark(self: Leadership, log_end_offset: int, now_ms: int) -> int:
        if self.is_under_min_isr:
            return NO_OFFSET
        return min([log_end_offset, *(self.followers[each].log_end_offset for each in self.isr if each in self.followers)])

    return [(Leadership, "high_watermark", high_watermark)]


@bug("a smaller ISR counts before the controller has accepted it", world="cluster", seeds_max=40)
def shrunk_before_agreed() -> list[Patch]:
    original = Leadership._propose

    def propose(self: Leadership, isr: tuple[int, ...]) -> Any:
        found = original(self, isr)
        self.maximal_isr = frozenset(isr)
        return found

    def high_watermark(self: Leadership, log_end_offset: int, now_ms: int) -> int:
        return min(
            [log_end_offset, *(self.followers[each].log_end_offset for each in self.maximal_isr if each in self.followers)]
        )

    return [(Leadership, "_propose", propose), (Leadership, "high_watermark", high_watermark)]


@bug("the high watermark is the leader's log end", world="cluster", seeds_max=20)
def leader_alone_commits() -> list[Patch]:
    return [(Leadership, "high_watermark", lambda self, log_end_offset, now_ms: log_end_offset)]


@bug("records sent to a follower count as stored there", world="cluster", seeds_max=20)
def sent_counts_as_stored() -> list[Patch]:
    original = Leadership.follower_fetched

    def follower_fetched(self: Leadership, replica: int, offset: int, start: int, log_end_offset: int, *rest: Any) -> Any:
        return original(self, replica, log_end_offset, start, log_end_offset, *rest)

    return [(Leadership, "follower_fetched", follower_fetched)]


@bug("a new leader assumes that the ISR has reached its log end", world="cluster", seeds_max=40)
def positions_assumed() -> list[Patch]:
    original = Leadership._assign

    def assign(self: Leadership, replicas: Any, now_ms: int) -> None:
        original(self, replicas, now_ms)
        for number, follower in self.followers.items():
            if number in self.isr and follower.log_end_offset < 0:
                follower.log_end_offset = self.epoch_start_offset

    return [(Leadership, "_assign", assign)]


@bug("the high watermark advances below min.insync.replicas", world="stories", first=4, seeds_max=60)
def under_min_advances() -> list[Patch]:
    original = Leadership.high_watermark

    def high_watermark(self: Leadership, log_end_offset: int, now_ms: int) -> int:
        start, self.epoch_start_offset = self.epoch_start_offset, log_end_offset
        try:
            return original(self, log_end_offset, now_ms)
        finally:
            self.epoch_start_offset = start

    return [(Leadership, "high_watermark", high_watermark)]


@bug("acks=all ignores min.insync.replicas", world="stories", first=4, seeds_max=60)
def min_isr_ignored() -> list[Patch]:
    return [(owner, "is_under_min_isr", property(lambda self: False)) for owner in (Leadership, Partition)]


@bug("acks=all is answered when the leader has written", world="cluster", seeds_max=20)
def all_means_one() -> list[Patch]:
    original = CommitWait.try_complete

    def try_complete(self: CommitWait) -> bool:
        return original(self) if self.done else self._end(None)

    return [(CommitWait, "try_complete", try_complete)]


@bug("a produce request that waits succeeds when its leader is deposed", world="cluster", seeds_max=40)
def deposed_says_success() -> list[Patch]:
    original = CommitWait.try_complete

    def try_complete(self: CommitWait) -> bool:
        if not self.done and (not self.partition.is_leader or self.partition.leading_since_epoch != self._leading_since_epoch):
            return self._end(None)
        return original(self)

    return [(CommitWait, "try_complete", try_complete)]


@bug("a new leader answers the latest offset before it knows the high watermark", world="stories", first=28, seeds_max=60)
def latest_offset_too_early() -> list[Patch]:
    return [(Partition, "epoch_start_offset", property(lambda self: 0))]


@bug("a consumer is sent to a close replica that is not in sync", world="stories", first=24, seeds_max=60)
def closest_out_of_sync() -> list[Patch]:
    def closest(leadership: Leadership, rack: str, offset: int, rack_of: Any) -> int | None:
        near = [replica for replica in leadership.followers if rack_of(replica) == rack]
        return near[0] if near and leadership.followers[near[0]].log_end_offset > NO_OFFSET else None

    return [(fetch_read, "closest_replica", closest)]


@bug("a fetch with an old leader epoch counts, whatever the epoch of its last record", world="late", seeds_max=30)
def stale_fetch_counts() -> list[Patch]:
    """Two fences at once: either of them is enough."""
    original, divergence = Partition.check_replica, Partition.divergence
    former: set[int] = set()

    def check_replica(self: Partition, current_leader_epoch: int) -> None:
        is_former = 0 <= current_leader_epoch < self.leader_epoch
        (former.add if is_former else former.discard)(id(self))
        original(self, self.leader_epoch if is_former else current_leader_epoch)

    def no_divergence(self: Partition, *arguments: Any) -> Any:
        return None if id(self) in former else divergence(self, *arguments)

    return [(Partition, "check_replica", check_replica), (Partition, "divergence", no_divergence)]


# --- the ISR


@bug("a follower joins the ISR before it has reached the high watermark", world="cluster", seeds_max=20)
def joins_behind() -> list[Patch]:
    original = Leadership.follower_fetched

    def follower_fetched(
        self: Leadership, replica: int, offset: int, start: int, end: int, high_watermark: int, *rest: Any
    ) -> Any:
        self.epoch_start_offset = 0
        return original(self, replica, offset, start, end, 0, *rest)

    return [(Leadership, "follower_fetched", follower_fetched)]


@bug("a follower joins the ISR before it has reached the start of the leader's epoch", world="stories", first=40, seeds_max=60)
def joins_below_epoch_start() -> list[Patch]:
    original = Leadership.follower_fetched

    def follower_fetched(self: Leadership, *arguments: Any) -> Any:
        start, self.epoch_start_offset = self.epoch_start_offset, 0
        try:
            return original(self, *arguments)
        finally:
            self.epoch_start_offset = start

    return [(Leadership, "follower_fetched", follower_fetched)]


@bug("a follower that stops fetching stays in the ISR", world="stories", first=4, seeds_max=60)
def never_shrinks() -> list[Patch]:
    return [(Leadership, "shrink", lambda self, *arguments: None)]


# --- followers


@bug("a follower truncates to its high watermark", world="cluster", seeds_max=20)
def truncates_to_high_watermark() -> list[Patch]:
    original = replica_fetcher.ReplicaFetchers.follow

    def follow(self: Any, partition: Partition) -> None:
        following.truncate_to(partition, partition.log.high_watermark, self._clock.now_ms())
        original(self, partition)

    return [(replica_fetcher.ReplicaFetchers, "follow", follow)]


@bug("a leader does not notice that a follower's log diverges", world="cluster", seeds_max=40)
def divergence_unnoticed() -> list[Patch]:
    return [(Partition, "divergence", lambda self, *arguments: None)]


@bug("a diverging log is truncated one batch too late", world="cluster", first=5, seeds_max=20)
def truncated_too_late() -> list[Patch]:
    original: Any = vars(replica_fetcher)["truncation"]

    def truncation(log: Any, *rest: Any) -> Truncation:
        found: Truncation = original(log, *rest)
        return replace(found, offset=min(found.offset + 1, log.log_end_offset))

    return [(replica_fetcher, "truncation", truncation)]


@bug("a diverging log is truncated too far", world="cluster", seeds_max=40)
def truncated_too_far() -> list[Patch]:
    original: Any = vars(replica_fetcher)["truncation"]

    def truncation(log: Any, *rest: Any) -> Truncation:
        found: Truncation = original(log, *rest)
        return replace(found, offset=max(found.offset - 3, 0))

    return [(replica_fetcher, "truncation", truncation)]


@bug("a follower truncates to the leader's end of an epoch that it does not have", world="stories", first=52, seeds_max=80)
def truncates_to_unknown_epoch() -> list[Patch]:
    original: Any = vars(replica_fetcher)["truncation"]

    def truncation(log: Any, leader_epoch: int, leader_end_offset: int) -> Truncation:
        if leader_end_offset == NO_OFFSET:
            found: Truncation = original(log, leader_epoch, leader_end_offset)
            return found
        return Truncation(min(leader_end_offset, log.log_end_offset), True)

    return [(replica_fetcher, "truncation", truncation)]


@bug("after an error a partition is not fetched any more", world="cluster", seeds_max=20)
def fetching_given_up() -> list[Patch]:
    def later(self: Any, followed: Any) -> None:
        followed.not_before = 1e12

    return [(replica_fetcher._Fetcher, "_later", later)]


@bug("a follower takes the leader's high watermark for records it does not have", world="cluster", seeds_max=40)
def high_watermark_ahead() -> list[Patch]:
    original = following.append_as_follower

    def append_as_follower(partition: Partition, *rest: Any) -> Any:
        info = original(partition, *rest)
        partition.log._high_watermark = partition.log.log_end_offset
        return info

    return [(following, "append_as_follower", append_as_follower)]


# --- replicas of deleted topics


@bug("the log of a deleted topic is reused by a new topic of that name", world="stories", first=48, seeds_max=60)
def deleted_log_reused() -> list[Patch]:
    original = ReplicaLogs._find

    def find(self: ReplicaLogs, key: Any, topic_id: bytes) -> Any:
        for data_dir in self.data_dirs:
            log = data_dir.logs.get(key)
            if log is not None and not log.closed and data_dir.online:
                log.topic_id = topic_id
        return original(self, key, topic_id)

    return [(ReplicaLogs, "_find", find)]


@bug("a broker that was away keeps the log of a deleted topic", world="stories", first=48, seeds_max=60)
def absent_broker_keeps_log() -> list[Patch]:
    return [(Partitions, "retire_deleted_logs", lambda self, image: None)]
