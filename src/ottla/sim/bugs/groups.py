"""Bugs of the group coordinator: offsets, classic groups, groups of the consumer protocol (KIP-848)."""

from __future__ import annotations

from typing import Any

from ottla.coordinator.group import offset_store
from ottla.coordinator.group.classic_group import ClassicGroup
from ottla.coordinator.group.classic_group_protocol import ClassicGroupProtocol
from ottla.coordinator.group.classic_rebalance import ClassicRebalance
from ottla.coordinator.group.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer_member import Reconciliation
from ottla.coordinator.group.member_deadlines import MemberDeadlines
from ottla.coordinator.group.offset_store import OffsetStore
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.shard import Decision, Now
from ottla.protocol.messages.sync_group import SyncGroupResponse
from ottla.sim.bugs.registry import Patch, bug

# --- offsets


@bug("a commit is acknowledged, and never appended", world="broker", seeds_max=40)
def commit_not_appended() -> list[Patch]:
    original = GroupShard.offset_commit

    def offset_commit(self: GroupShard, *arguments: Any) -> Decision:
        decision = original(self, *arguments)
        for record in decision.records:
            self.replay(record.key, record.value)
        decision.records = []
        return decision

    return [(GroupShard, "offset_commit", offset_commit)]


@bug("a commit of an old generation is accepted", world="broker", seeds_max=400)
def stale_generation_commits() -> list[Patch]:
    return [(ClassicGroup, "check_commit", lambda self, *arguments, **options: None)]


@bug("long commit metadata is truncated", world="broker", seeds_max=60)
def metadata_truncated() -> list[Patch]:
    original: Any = vars(offset_store)["offset_commit_value"]

    def offset_commit_value(offset: int, leader_epoch: int, metadata: str, *rest: Any) -> bytes:
        data: bytes = original(offset, leader_epoch, metadata[:10], *rest)
        return data

    return [(offset_store, "offset_commit_value", offset_commit_value)]


@bug("tombstones of offsets are ignored in replay", world="broker", seeds_max=120)
def tombstones_not_replayed() -> list[Patch]:
    original = OffsetStore.replay

    def replay(self: OffsetStore, key: Any, value: Any, *rest: Any) -> None:
        if value is not None:
            original(self, key, value, *rest)

    return [(OffsetStore, "replay", replay)]


@bug("offsets expire while the group has members", world="broker", seeds_max=120)
def offsets_expire_with_members() -> list[Patch]:
    return [
        (ClassicGroup, "offset_base_ms", lambda self, offset: offset.commit_timestamp_ms),
        (ClassicGroup, "is_subscribed_to", lambda self, topic: False),
        (ConsumerGroup, "is_subscribed_to", lambda self, topic: False),
    ]


@bug("offsets of an empty group never expire", world="broker", seeds_max=120)
def offsets_never_expire() -> list[Patch]:
    return [(GroupShard, "expire_offsets", lambda self, wall_ms: Decision())]


# --- classic groups


@bug("a rebalance does not make a new generation", world="broker", seeds_max=40)
def generation_not_raised() -> list[Patch]:
    original = ClassicGroup.next_generation

    def next_generation(self: ClassicGroup, wall_ms: int) -> None:
        before = self.generation
        original(self, wall_ms)
        if before > 1:
            self.generation = before

    return [(ClassicGroup, "next_generation", next_generation)]


@bug("a member without heartbeats is not evicted", world="broker", seeds_max=60)
def session_never_over() -> list[Patch]:
    return [
        (ClassicRebalance, "session_timer", lambda self, *arguments: None),
        (MemberDeadlines, "session_is_over", lambda self, *arguments: False),
    ]


@bug("all members get the leader's assignment", world="broker", seeds_max=60)
def leaders_assignment_for_all() -> list[Patch]:
    original = ClassicGroupProtocol._take_assignment

    def take_assignment(self: ClassicGroupProtocol, decision: Decision, group: ClassicGroup, request: Any, now: Now) -> None:
        first = request.assignments[0].assignment if request.assignments else b""
        original(self, decision, group, request, now)
        for _, response in decision.replies:
            if isinstance(response, SyncGroupResponse) and not response.error_code:
                response.assignment = first

    return [(ClassicGroupProtocol, "_take_assignment", take_assignment)]


@bug("an assignment is answered and not written", world="broker", seeds_max=60)
def assignment_not_written() -> list[Patch]:
    original = ClassicGroupProtocol._take_assignment

    def take_assignment(self: ClassicGroupProtocol, decision: Decision, group: ClassicGroup, *rest: Any) -> None:
        original(self, decision, group, *rest)
        for record in decision.records:
            # The group itself takes them over.
            from ottla.protocol.internal.group_records import decode_record

            decoded = decode_record(record.key, record.value)
            assert decoded is not None
            group.replay(decoded[2])
        decision.records.clear()

    return [(ClassicGroupProtocol, "_take_assignment", take_assignment)]


# --- the consumer protocol


@bug("a partition is assigned before its owner has revoked it", world="broker", seeds_max=60)
def revocation_not_awaited() -> list[Patch]:
    original = Reconciliation._towards_target

    def towards_target(self: Reconciliation, member: Any) -> Any:
        object.__setattr__(self, "is_held_by_others", lambda topic, partition: False)
        return original(self, member)

    return [(Reconciliation, "_towards_target", towards_target)]


@bug("a group epoch is lost when the group is loaded", world="broker", seeds_max=120)
def epoch_forgotten() -> list[Patch]:
    original = ConsumerGroup._epoch_record

    def epoch_record(self: ConsumerGroup, epoch: int, *rest: Any) -> None:
        original(self, epoch if not self.epoch or epoch < 4 else self.epoch - 2, *rest)

    return [(ConsumerGroup, "_epoch_record", epoch_record)]
