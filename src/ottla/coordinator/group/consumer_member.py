"""One member of a consumer group, and its reconciliation from one assignment to the next.

Owns the states of a member and the reconciliation: given its target assignment, which partitions the member may own now and which
it has to revoke first. Members are immutable.

Each member reconciles independently of the others:

    STABLE                  it owns the target assignment of its epoch
    UNREVOKED_PARTITIONS    it has to revoke partitions, and stays in its epoch until it confirms
    UNRELEASED_PARTITIONS   it is in the target epoch and waits for partitions that others have not revoked yet

1. A partition is assigned to a member only if no other member owns it or is revoking it: no two members own it at once (G05).
2. A member gets new partitions, and its next epoch, only after it has revoked those it has to.
3. The epoch of a partition is that of the assignment in which the member got it. A commit with an older member epoch is valid for
   partitions that the member owned in that epoch (KIP-1251).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Final

from ottla.coordinator.group.assignors import Assignment, enabled
from ottla.coordinator.group.group import GroupConfig
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

JOINING_EPOCH: Final = 0
LEAVING_EPOCH: Final = -1
LEAVING_STATIC_EPOCH: Final = -2
"""A static member that leaves temporarily: it keeps its partitions."""


Owned = Mapping[bytes, Mapping[int, int]]
"""Topic id -> partition -> the epoch in which it was assigned."""
NOTHING: Final[Owned] = {}
UNCHANGED: Final = -1
"""A rebalance timeout that the request leaves as it is."""
_MEMBER_ID_FROM: Final = 1
"""The version from which clients generate the member id (KIP-1082)."""


class MemberState(IntEnum):
    """The numbers are in the log."""

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


@dataclass(frozen=True, slots=True)
class ClassicMetadata:
    """What is stored of a classic member."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]
    """(name, subscription) in its order of preference. The first one is used."""


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
    """Partitions that it has to revoke."""
    classic: ClassicMetadata | None = None

    def is_reconciled_to(self, target_epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.epoch == target_epoch

    def epoch_of(self, topic_id: bytes, partition: int) -> int | None:
        """The epoch in which the partition was assigned; None if the member does not own it."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return epoch if epoch is not None else self.pending_revocation.get(topic_id, {}).get(partition)

    def away(self) -> ConsumerMember:
        """The static member after it left temporarily."""
        return replace(
            self,
            epoch=LEAVING_STATIC_EPOCH,
            pending_revocation=NOTHING,
            assigned={topic: dict.fromkeys(partitions, 0) for topic, partitions in self.assigned.items()},
        )


@dataclass(frozen=True, slots=True)
class Reconciliation:
    """The inputs of one reconciliation step."""

    target_epoch: int
    target: Assignment
    subscribed: frozenset[bytes]
    """The topics that the member subscribes to now. It gets no others, whatever an older target says."""
    is_held_by_others: Callable[[bytes, int], bool]
    """Whether another member owns the partition or is revoking it."""
    owned: Assignment | None
    """The partitions that the member reports to own; None: it did not report."""
    subscription_changed: bool = False

    def step(self, member: ConsumerMember) -> ConsumerMember:
        """The next state of the member; the same if it has to wait. KafkaError if it must rejoin."""
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
                        "the partitions of the member are unknown: it must revoke all of them and rejoin",
                    )
                reached = self._towards_target(replace(member, epoch=self.target_epoch))
        assert reached.state in TRANSITIONS[member.state] or reached is member
        return reached

    def _has_any(self, partitions: Owned) -> bool:
        """Whether the member still owns one of them. True if it did not report."""
        if self.owned is None:
            return True
        return any(not partitions[topic].keys().isdisjoint(self.owned[topic]) for topic in partitions if topic in self.owned)

    def _unsubscribed(self, member: ConsumerMember) -> ConsumerMember:
        """Revoke partitions of topics that the member no longer subscribes to, without a new target."""
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
    """Check that the instance id belongs to the member. KafkaError if not."""
    if existing is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"instance id {instance_id} is unknown")
    if existing.member_id != member_id:
        raise KafkaError(
            ErrorCode.FENCED_INSTANCE_ID,
            f"instance id {instance_id} belongs to member {existing.member_id} now, not to {member_id}",
        )
    return existing


def check_request(request: ConsumerGroupHeartbeatRequest, version: int, config: GroupConfig) -> None:
    """Check the fields of a request. KafkaError if they are invalid."""
    config.require_consumer_protocol()
    epoch = request.member_epoch
    if version >= _MEMBER_ID_FROM or epoch > JOINING_EPOCH or epoch == LEAVING_EPOCH:
        _not_blank(request.member_id, "member id")
    _not_blank(request.group_id, "group id")
    _not_blank(request.instance_id, "instance id")
    _not_blank(request.rack_id, "rack id")
    if epoch == JOINING_EPOCH:
        if request.rebalance_timeout_ms == UNCHANGED:
            raise _invalid("a joining member must set the rebalance timeout")
        if request.topic_partitions is None or request.topic_partitions:
            raise _invalid("a joining member must send an empty list of owned partitions")
        if request.subscribed_topic_names is None and request.subscribed_topic_regex is None:
            raise _invalid("a joining member must subscribe to topic names or to a regular expression")
    elif epoch == LEAVING_STATIC_EPOCH:
        if request.instance_id is None:
            raise _invalid(f"member epoch {epoch} requires an instance id")
    elif epoch < LEAVING_STATIC_EPOCH:
        raise _invalid(f"member epoch {epoch} is invalid")
    assignors = enabled(config.consumer_assignors)
    if request.server_assignor is not None and request.server_assignor not in assignors:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"assignor {request.server_assignor} is not supported; supported: {', '.join(assignors)}",
        )


def check_epoch(member: ConsumerMember, epoch: int, owned: Assignment | None) -> None:
    """Check the member epoch: the current one, or the previous one if the member missed the last reply. KafkaError if not."""
    if epoch in (JOINING_EPOCH, member.epoch):
        return
    if epoch > member.epoch:
        raise _fenced("larger", epoch, member)
    if (
        epoch != member.previous_epoch
        or owned is None
        or not all(partitions <= member.assigned.get(topic, {}).keys() for topic, partitions in owned.items())
    ):
        raise _fenced("smaller", epoch, member)


def _fenced(how: str, epoch: int, member: ConsumerMember) -> KafkaError:
    return KafkaError(
        ErrorCode.FENCED_MEMBER_EPOCH,
        f"member epoch {epoch} is {how} than the coordinator's, {member.epoch}: the member must revoke its partitions and rejoin",
    )


def _invalid(detail: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, detail)


def _not_blank(text: str | None, name: str) -> None:
    if text is not None and not text.strip():
        raise _invalid(f"the {name} is blank")
