"""One member of a group of the new protocol, and how it comes from one assignment to the next.

Owns the member's states and the reconciliation: given the assignment that is intended for a member (the target), what it may have
now, and what it has to give up first. Members are values: a change is another member.

A member moves towards its target by itself, at its own pace, without the others:

    STABLE                  it has what the target of its epoch says
    UNREVOKED_PARTITIONS    it was told to give up some; until it has said that it did, it stays in its epoch
    UNRELEASED_PARTITIONS   it is in the target's epoch and lacks some that others have not given up yet

1. A partition is given to a member only if nobody has it or is still giving it up. So no two members own it at once (G05).
2. A member that must give up partitions is given new ones only after it gave these up, and only then its epoch moves on.
3. The epoch of a partition is that of the assignment in which the member got it: a commit from an older epoch of the member is
   good for a partition that it had already then (KIP-1251).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from ottla.coordinator.group.assignors import Assignment
from ottla.errors import ErrorCode, KafkaError

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
LEAVING_STATIC_EPOCH: Final = -2
"""A static member that will be back: its partitions are kept for it."""


class MemberState(IntEnum):
    """The numbers are those of the log."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127
    """Written by a later version."""

    @classmethod
    def read(cls, number: int) -> MemberState:
        return cls(number) if number in _STATES else cls.UNKNOWN


_STATES: Final = frozenset(MemberState)

TRANSITIONS: Final[dict[MemberState, frozenset[MemberState]]] = {
    MemberState.STABLE: frozenset({MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS}),
    MemberState.UNREVOKED_PARTITIONS: frozenset(
        {MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS, MemberState.STABLE}
    ),
    MemberState.UNRELEASED_PARTITIONS: frozenset(
        {MemberState.UNRELEASED_PARTITIONS, MemberState.UNREVOKED_PARTITIONS, MemberState.STABLE}
    ),
    MemberState.UNKNOWN: frozenset({MemberState.STABLE, MemberState.UNREVOKED_PARTITIONS, MemberState.UNRELEASED_PARTITIONS}),
}

Owned = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> the epoch in which it was assigned."""
NOTHING: Final[Owned] = {}


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What is kept of a member that speaks the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, subscription) in its order of preference; the first is the one it is told to use."""


@dataclass(frozen=True, slots=True)
class ConsumerMember:
    member_id: str
    epoch: int = JOINING_EPOCH
    previous_epoch: int = -1
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    pattern: str = ""
    """A regular expression; none if empty."""
    server_assignor: str | None = None
    assigned: Owned = field(default_factory=dict)
    pending_revocation: Owned = field(default_factory=dict)
    """What it was told to give up."""
    classic: ClassicMetadata | None = None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """In which epoch the partition was assigned; None if the member does not have it."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return epoch if epoch is not None else self.pending_revocation.get(topic_id, {}).get(partition)

    def away(self) -> ConsumerMember:
        """The same static member while it is away."""
        return replace(
            self,
            epoch=LEAVING_STATIC_EPOCH,
            pending_revocation=NOTHING,
            assigned={topic: dict.fromkeys(partitions, 0) for topic, partitions in self.assigned.items()},
        )


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """What a step of a member towards its target depends on."""

    target_epoch: int
    target: Assignment
    subscribed: frozenset[bytes]
    """The topics the member subscribes to now. Of others it is to have nothing, whatever an older target says."""
    is_held_by_others: Callable[[bytes, int], bool]
    """Whether another member has the partition, or is giving it up."""
    owned: Assignment | None
    """What the member says it has; None: it said nothing about it."""
    subscription_changed: bool = False

    def step(self, member: ConsumerMember) -> ConsumerMember:
        """The member as it is next: the same if nothing can be done yet. KafkaError if it must begin anew."""
        match member.state:
            case MemberState.STABLE:
                if member.epoch != self.target_epoch:
                    reached = self._towards_target(member)
                elif self.subscription_changed:
                    reached = self._unsubscribed(member)
                else:
                    reached = member
            case MemberState.UNREVOKED_PARTITIONS:
                if not self._has_any(member.pending_revocation):
                    reached = self._towards_target(member)
                elif self.subscription_changed:
                    reached = self._unsubscribed(member)
                else:
                    reached = member
            case MemberState.UNRELEASED_PARTITIONS:
                reached = self._towards_target(member)
            case MemberState.UNKNOWN:
                if self.owned is None or self.owned:
                    raise KafkaError(
                        ErrorCode.FENCED_MEMBER_EPOCH,
                        "nothing is known of what the member owns: it has to give up all of it and join again",
                    )
                reached = self._towards_target(replace(member, epoch=self.target_epoch))
        assert reached.state in TRANSITIONS[member.state] or reached is member
        return reached

    def _has_any(self, partitions: Owned) -> bool:
        """Whether the member still has one of them. While it does not say, it has."""
        if self.owned is None:
            return True
        return any(not partitions[topic].keys().isdisjoint(self.owned[topic]) for topic in partitions if topic in self.owned)

    def _unsubscribed(self, member: ConsumerMember) -> ConsumerMember:
        """It gives up at once what it does not subscribe to any more: no new target is needed for that."""
        gone = {topic: partitions for topic, partitions in member.assigned.items() if topic not in self.subscribed}
        if not gone:
            return member
        assigned = {topic: partitions for topic, partitions in member.assigned.items() if topic in self.subscribed}
        pending = dict(member.pending_revocation)
        for topic, partitions in gone.items():
            pending[topic] = {**pending.get(topic, {}), **partitions}
        if self._has_any(pending):
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                previous_epoch=member.epoch,
                assigned=assigned,
                pending_revocation=pending,
            )
        return replace(member, previous_epoch=member.epoch, assigned=assigned)

    def _towards_target(self, member: ConsumerMember) -> ConsumerMember:
        assigned: dict[bytes, dict[int, int]] = {}
        pending: dict[bytes, dict[int, int]] = {}
        lacking = False
        gains = False
        for topic in sorted(self.target.keys() | member.assigned.keys()):
            target = self.target.get(topic, frozenset()) if topic in self.subscribed else frozenset()
            before = member.assigned.get(topic, {})
            kept = {partition: epoch for partition, epoch in before.items() if partition in target}
            revoked = {partition: epoch for partition, epoch in before.items() if partition not in target}
            if revoked:
                pending[topic] = revoked
            new = {}
            for partition in sorted(target - kept.keys()):
                if self.is_held_by_others(topic, partition):
                    lacking = True
                else:
                    new[partition] = self.target_epoch
            if new:
                gains = True
            if kept or new:
                assigned[topic] = {**kept, **new}
        if pending and self._has_any(pending):
            if gains:
                assigned = {
                    topic: kept
                    for topic, partitions in assigned.items()
                    if (kept := {p: e for p, e in partitions.items() if p in member.assigned.get(topic, {})})
                }
            return replace(
                member,
                state=MemberState.UNREVOKED_PARTITIONS,
                previous_epoch=member.epoch,
                assigned=assigned,
                pending_revocation=pending,
            )
        return replace(
            member,
            state=MemberState.UNRELEASED_PARTITIONS if lacking else MemberState.STABLE,
            epoch=self.target_epoch,
            previous_epoch=member.epoch,
            assigned=assigned,
            pending_revocation=NOTHING,
        )


def partitions_of(owned: Owned) -> dict[bytes, frozenset[int]]:
    """Without the epochs."""
    return {topic: frozenset(partitions) for topic, partitions in owned.items()}


def check_instance(existing: ConsumerMember | None, instance_id: str, member_id: str) -> ConsumerMember:
    """That the member is the one with the instance id. KafkaError if not."""
    if existing is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"no member has the instance id {instance_id}")
    if existing.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"the instance id {instance_id} belongs to {existing.member_id} now, not to {member_id}",
        )
    return existing
