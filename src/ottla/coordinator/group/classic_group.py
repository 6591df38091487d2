"""One classic group: its state, its members, and what they agree on.

Owns the bookkeeping, and its invariants. Never decides when something happens: `classic` does.

1. `awaiting_join` counts the members whose JoinGroup is parked; a member is never parked twice.
2. `instances` maps each static member's instance id to its member id, and nothing else (KIP-345).
3. `votes_for[p]` is the number of members that support protocol p; a protocol all of them support is a candidate.
4. While it has members, the group has a leader, which is one of them.
5. An id is pending (given out, not yet joined, KIP-394) or a member, never both.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum
from struct import Struct
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.group import NO_MEMBER, GroupType
from ottla.coordinator.java_hash import string_hash
from ottla.coordinator.shard import CoordinatorRecord, Token
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.group_records import (
    GROUP_METADATA_VERSION,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    encode_key,
    encode_value,
    record_type_of,
)
from ottla.types import NO_TIMESTAMP

if TYPE_CHECKING:
    from ottla.coordinator.group.committed_offset import CommittedOffset

CONSUMER_PROTOCOL: Final = "consumer"

Protocols = tuple[tuple[str, bytes], ...]
"""(name, subscription) in the member's order of preference."""


class State(Enum):
    EMPTY = "Empty"
    """No members. Offsets may remain."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Members are called to join the next generation."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """The generation is complete; the leader's assignment is awaited."""
    STABLE = "Stable"
    DEAD = "Dead"
    """What an unknown group is called."""


TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset(),
}

_CAN_REBALANCE: Final = tuple(state for state, next_ones in TRANSITIONS.items() if State.PREPARING_REBALANCE in next_ones)


class ClassicMember:
    __slots__ = (
        "assignment",
        "client_host",
        "client_id",
        "deadline_ms",
        "instance_id",
        "is_new",
        "join_token",
        "member_id",
        "protocols",
        "rebalance_timeout_ms",
        "session_timeout_ms",
        "sync_token",
        "timer_ms",
    )

    def __init__(
        self,
        member_id: str,
        instance_id: str | None,
        client_id: str,
        client_host: str,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        protocols: Protocols,
        assignment: bytes = b"",
    ) -> None:
        self.member_id = member_id
        self.instance_id = instance_id
        self.client_id = client_id
        self.client_host = client_host
        self.rebalance_timeout_ms = rebalance_timeout_ms
        self.session_timeout_ms = session_timeout_ms
        self.protocols = protocols
        self.assignment = assignment
        self.join_token: Token | None = None
        """The parked JoinGroup."""
        self.sync_token: Token | None = None
        """The parked SyncGroup."""
        self.is_new = False
        """In its first JoinGroup: it does not know its id yet, so it cannot send heartbeats."""
        self.deadline_ms = 0
        """Gone if nothing is heard until then."""
        self.timer_ms = 0
        """When the timer of the session fires; it then looks at the deadline. 0: there is none."""

    def heard(self, now_ms: int) -> None:
        """A heartbeat: the session goes on. (That of a member in its first JoinGroup does not: it cannot have sent one.)"""
        if not self.is_new:
            self.deadline_ms = now_ms + self.session_timeout_ms

    def subscription(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class ClassicGroup:
    type: Final[GroupType] = "classic"

    __slots__ = (
        "awaiting_join",
        "current_state_timestamp_ms",
        "generation",
        "group_id",
        "instances",
        "join_delay_ms",
        "join_remaining_ms",
        "leader",
        "members",
        "new_member_added",
        "pending_join",
        "pending_sync",
        "previous_state",
        "protocol_name",
        "protocol_type",
        "state",
        "subscribed_topics",
        "votes_for",
    )

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.previous_state = State.DEAD
        self.current_state_timestamp_ms = NO_TIMESTAMP
        """When the state was entered, as far as it was written down."""
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.instances: dict[str, str] = {}
        self.pending_join: dict[str, int] = {}
        """Ids given out with MEMBER_ID_REQUIRED, and until when they are good."""
        self.pending_sync: set[str] = set()
        """Members of the new generation whose SyncGroup has not come yet."""
        self.awaiting_join = 0
        self.votes_for: dict[str, int] = {}
        self.subscribed_topics: frozenset[str] | None = None
        """None: not known, because the members do not speak the consumer protocol or none is chosen."""
        self.new_member_added = False
        """Somebody came during the initial rebalance, so it may be prolonged."""
        self.join_delay_ms = 0
        self.join_remaining_ms = 0

    # What every kind of group answers

    @property
    def state_name(self) -> str:
        return self.state.value

    @property
    def is_empty(self) -> bool:
        return self.state is State.EMPTY

    @property
    def speaks_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL

    def is_subscribed_to(self, topic: str) -> bool:
        if self.subscribed_topics is not None:
            return topic in self.subscribed_topics
        # Consumers whose subscriptions are not known may be subscribed to anything.
        return self.speaks_consumer_protocol

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """That the member exists and no other has taken its instance id. KafkaError if not."""
        if instance_id is not None:
            known = self.instances.get(instance_id)
            if known is None:
                raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
            if known != member_id:
                raise KafkaError(ErrorCode.FENCED_INSTANCE_ID)
        member = self.members.get(member_id)
        if member is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        return member

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, version: int, *, transactional: bool = False
    ) -> None:
        if generation < 0 and self.state is State.EMPTY:
            # An administrator, or a consumer that assigns its partitions itself.
            return
        if generation >= 0 or member_id != NO_MEMBER or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and self.state is State.COMPLETING_REBALANCE:
            # It knows the new generation, so it has given up its partitions, or should have.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Anyone may."""

    def check_offset_delete(self) -> None:
        if self.state is not State.EMPTY and not self.speaks_consumer_protocol:
            # Nobody here can tell which topics the members read.
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        if self.state is not State.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(encode_key(GroupMetadataKey(group=self.group_id)), None)]

    def offset_base_ms(self, offset: CommittedOffset) -> int | None:
        if self.protocol_type is None:
            return offset.commit_timestamp_ms
        if self.state is State.EMPTY:
            since_ms = self.current_state_timestamp_ms
            return since_ms if since_ms != NO_TIMESTAMP else offset.commit_timestamp_ms
        if self.state is State.STABLE and self.speaks_consumer_protocol and self.subscribed_topics is not None:
            return offset.commit_timestamp_ms
        return None

    def touch(self, member_id: str, now_ms: int) -> None:
        if self.state in (State.STABLE, State.PREPARING_REBALANCE):
            member = self.members.get(member_id)
            if member is not None:
                # Later than its timer, if at all, since the session timeout is the member's own: the timer will see it.
                member.deadline_ms = max(member.deadline_ms, now_ms + member.session_timeout_ms)

    # State

    def transition_to(self, state: State, wall_ms: int) -> None:
        assert state in TRANSITIONS[self.state], f"group {self.group_id} cannot go from {self.state} to {state}"
        self.previous_state = self.state
        self.state = state
        self.current_state_timestamp_ms = wall_ms

    @property
    def can_rebalance(self) -> bool:
        return self.state in _CAN_REBALANCE

    @property
    def all_joined(self) -> bool:
        return len(self.members) == self.awaiting_join and not self.pending_join

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    # Members

    def add(self, member: ClassicMember, protocol_type: str, token: Token | None) -> None:
        if member.instance_id is not None:
            assert member.instance_id not in self.instances
            self.instances[member.instance_id] = member.member_id
        if not self.members:
            self.protocol_type = protocol_type
        if self.leader is None:
            self.leader = member.member_id
        self.members[member.member_id] = member
        self._count_votes(member, 1)
        if token is not None:
            member.join_token = token
            self.awaiting_join += 1
        self.pending_join.pop(member.member_id, None)

    def remove(self, member_id: str) -> ClassicMember | None:
        """Who waited in it must have been answered before."""
        member = self.members.pop(member_id, None)
        self.pending_join.pop(member_id, None)
        self.pending_sync.discard(member_id)
        if member is None:
            return None
        assert member.join_token is None, "answer the parked JoinGroup first"
        assert member.sync_token is None, "answer the parked SyncGroup first"
        self._count_votes(member, -1)
        if member.instance_id is not None:
            del self.instances[member.instance_id]
        if self.leader == member_id:
            self.leader = next(iter(self.members), None)
        return member

    def update(self, member: ClassicMember, protocols: Protocols, rebalance_timeout_ms: int, session_timeout_ms: int) -> None:
        self._count_votes(member, -1)
        member.protocols = protocols
        self._count_votes(member, 1)
        member.rebalance_timeout_ms = rebalance_timeout_ms
        member.session_timeout_ms = session_timeout_ms

    def replace_static(self, member: ClassicMember, new_id: str) -> None:
        """The same member under another id: it restarted, and forgot the old one."""
        assert member.instance_id is not None
        old_id = member.member_id
        # The member keeps its place in the order of members.
        self.members = {(new_id if member_id == old_id else member_id): other for member_id, other in self.members.items()}
        member.member_id = new_id
        self.instances[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_sync:
            self.pending_sync.discard(old_id)
            self.pending_sync.add(new_id)

    def park_join(self, member: ClassicMember, token: Token) -> Token | None:
        """Let a JoinGroup wait. Returns the one that waited before, if any: it will not be answered by the generation."""
        before, member.join_token = member.join_token, token
        if before is None:
            self.awaiting_join += 1
        return before

    def take_join(self, member: ClassicMember) -> Token | None:
        """The parked JoinGroup, to be answered now."""
        token, member.join_token = member.join_token, None
        if token is not None:
            self.awaiting_join -= 1
        return token

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it joined, else take one of those who did. False: nobody did."""
        leader = self.members.get(self.leader) if self.leader is not None else None
        if leader is None:
            return False
        if leader.join_token is not None:
            return True
        for member in self.members.values():
            if member.join_token is not None:
                self.leader = member.member_id
                return True
        return False

    # Protocols

    def _count_votes(self, member: ClassicMember, by: int) -> None:
        votes = self.votes_for
        for name, _ in member.protocols:
            count = votes.get(name, 0) + by
            if count:
                votes[name] = count
            else:
                del votes[name]

    def supports(self, protocol_type: str, protocols: Protocols) -> bool:
        """Whether a member with these protocols has one in common with all members."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        size, votes = len(self.members), self.votes_for
        for name, _ in protocols:  # noqa: SIM110  a generator costs each JoinGroup more than what it says
            if votes.get(name, 0) == size:
                return True
        return False

    def select_protocol(self) -> str:
        """Each member votes for the first of its protocols that all support; most votes win (G03). Of equals the first in the
        order of Java's hash map, which is what decides with Kafka."""
        size = len(self.members)
        candidates = {name for name, count in self.votes_for.items() if count == size}
        votes: dict[str, int] = {}
        for member in self.members.values():
            choice = next(name for name, _ in member.protocols if name in candidates)
            votes[choice] = votes.get(choice, 0) + 1
        return votes.popitem()[0] if len(votes) == 1 else max(_in_java_order(votes), key=votes.__getitem__)

    def next_generation(self, wall_ms: int) -> None:
        self.generation += 1
        self.pending_sync.clear()
        if self.members:
            self.protocol_name = self.select_protocol()
            self.transition_to(State.COMPLETING_REBALANCE, wall_ms)
        else:
            self.protocol_name = None
            self.transition_to(State.EMPTY, wall_ms)
        self.subscribed_topics = self.find_subscribed_topics()

    def find_subscribed_topics(self) -> frozenset[str] | None:
        if not self.speaks_consumer_protocol:
            return None
        if not self.members:
            return frozenset()
        topics: set[str] = set()
        # Most members say the same, and it is read once.
        for subscription in {member.subscription(self.protocol_name) for member in self.members.values()}:
            names = subscribed_topics(subscription)
            if names is None:
                return None
            topics.update(names)
        return frozenset(topics)

    # The record

    def record(self, assignments: dict[str, bytes] | None = None) -> CoordinatorRecord:
        """The group as it is written down; with the assignments given, or those the members have."""
        value = GroupMetadataValue(
            protocol_type=self.protocol_type or "",
            generation=self.generation,
            protocol=self.protocol_name,
            leader=self.leader,
            current_state_timestamp=self.current_state_timestamp_ms,
            members=[
                MemberMetadata(
                    member_id=member.member_id,
                    group_instance_id=member.instance_id,
                    client_id=member.client_id,
                    client_host=member.client_host,
                    rebalance_timeout=member.rebalance_timeout_ms,
                    session_timeout=member.session_timeout_ms,
                    subscription=member.subscription(self.protocol_name),
                    assignment=member.assignment if assignments is None else assignments.get(member.member_id, b""),
                )
                for member in self.members.values()
            ],
        )
        key = GroupMetadataKey(group=self.group_id)
        return CoordinatorRecord(encode_key(key), encode_value(value, GROUP_METADATA_VERSION), (record_type_of(key), key, value))

    def replay(self, value: GroupMetadataValue) -> None:
        """Become what the record says. Members who are here already keep what they wait for, and all their protocols."""
        if self.state is State.PREPARING_REBALANCE:
            # A rebalance that has begun goes on: who takes part in it is not written down.
            for written in value.members:
                member = self.members.get(written.member_id)
                if member is not None:
                    member.assignment = bytes(written.assignment)
            return
        known, self.members = self.members, {}
        self.instances = {}
        self.votes_for = {}
        self.awaiting_join = 0
        for written in value.members:
            member = known.get(written.member_id)
            if member is None or not _is_as_written(member, written, value.protocol):
                member = ClassicMember(
                    written.member_id,
                    written.group_instance_id,
                    written.client_id,
                    written.client_host,
                    written.rebalance_timeout if written.rebalance_timeout != -1 else written.session_timeout,
                    written.session_timeout,
                    ((value.protocol or "", bytes(written.subscription)),),
                )
            member.assignment = bytes(written.assignment)
            self.add(member, value.protocol_type, None)
            if member.join_token is not None:
                self.awaiting_join += 1
        self.generation = value.generation
        self.protocol_type = value.protocol_type or None
        self.protocol_name = value.protocol
        self.leader = value.leader if value.leader in self.members else next(iter(self.members), None)
        self.previous_state, self.state = self.state, State.STABLE if self.members else State.EMPTY
        self.current_state_timestamp_ms = value.current_state_timestamp
        self.subscribed_topics = self.find_subscribed_topics()


def _is_as_written(member: ClassicMember, written: MemberMetadata, protocol: str | None) -> bool:
    """A member that is here always is. One from an earlier record of the same log may have changed since."""
    return (
        member.subscription(protocol) == written.subscription
        and member.instance_id == written.group_instance_id
        and member.session_timeout_ms == written.session_timeout
        and member.rebalance_timeout_ms == written.rebalance_timeout
    )


_read_int16 = Struct(">h").unpack_from
_read_int32 = Struct(">i").unpack_from


def subscribed_topics(subscription: bytes) -> list[str] | None:
    """The topics in a consumer's subscription; None if it is not one. All versions begin as version 0 does."""
    position, end = 6, len(subscription)
    if end < position:
        return None
    version: int = _read_int16(subscription, 0)[0]
    count: int = _read_int32(subscription, 2)[0]
    if version < 0 or not 0 <= count <= end // 2:
        return None
    topics: list[str] = []
    for _ in range(count):
        if end - position < 2:
            return None
        size: int = _read_int16(subscription, position)[0]
        position += 2
        if not 0 <= size <= end - position:
            return None
        try:
            topics.append(subscription[position : position + size].decode())
        except UnicodeDecodeError:
            return None
        position += size
    return topics


def _in_java_order(names: Collection[str]) -> list[str]:
    """As a HashMap to which the names were added goes over them."""
    buckets = 16
    while len(names) > buckets * 3 // 4:
        buckets *= 2

    def bucket(name: str) -> int:
        code = string_hash(name)
        return (code ^ code >> 16) & (buckets - 1)

    return sorted(names, key=bucket)
