"""One classic group: its state, its members, and what they agree on.

Owns the members, the state and the invariants below. Never decides when something happens: `classic_group_protocol` does.

1. `awaiting_join` is the number of members with a pending JoinGroup; a member has at most one.
2. `instances` maps the instance id of each static member to its member id (KIP-345).
3. `votes_for[p]` is the number of members that support protocol p; a protocol that all support is a candidate.
4. A group with members has a leader, which is one of them.
5. A member id is pending (sent with MEMBER_ID_REQUIRED and not joined yet, KIP-394) or that of a member, never both.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, ClassVar, Final

from ottla.coordinator.group.consumer_protocol import subscribed_topics
from ottla.coordinator.group.group import NO_MEMBER, CommitCheck, Group, GroupType
from ottla.coordinator.shard import CoordinatorRecord, Token, string_hash
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
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.protocol.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.messages.sync_group import SyncGroupResponse
from ottla.types import NO_TIMESTAMP

if TYPE_CHECKING:
    from ottla.coordinator.group.committed_offset import CommittedOffset

CONSUMER_PROTOCOL: Final = "consumer"
_NOT_FOUND_FROM: Final = 6
"""The version of DescribeGroups in which an unknown group is an error."""


class State(Enum):
    EMPTY = "Empty"
    """No members. Offsets may remain."""
    PREPARING_REBALANCE = "PreparingRebalance"
    """Waiting for the members to rejoin."""
    COMPLETING_REBALANCE = "CompletingRebalance"
    """All members have joined. Waiting for the assignment of the leader."""
    STABLE = "Stable"
    DEAD = "Dead"
    """The state of a group that does not exist."""


TRANSITIONS: Final[dict[State, frozenset[State]]] = {
    State.EMPTY: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.PREPARING_REBALANCE: frozenset({State.COMPLETING_REBALANCE, State.EMPTY, State.DEAD}),
    State.COMPLETING_REBALANCE: frozenset({State.STABLE, State.PREPARING_REBALANCE, State.DEAD}),
    State.STABLE: frozenset({State.PREPARING_REBALANCE, State.DEAD}),
    State.DEAD: frozenset(),
}
_CAN_REBALANCE: Final = tuple(state for state, next_ones in TRANSITIONS.items() if State.PREPARING_REBALANCE in next_ones)


Protocols = tuple[tuple[str, bytes], ...]
"""(name, subscription) in the member's order of preference."""


@dataclass(eq=False)
class ClassicMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: Protocols
    assignment: bytes = b""
    join_token: Token | None = None
    """The pending JoinGroup."""
    sync_token: Token | None = None
    """The pending SyncGroup."""
    is_new: bool = False
    """Its first JoinGroup is pending: it does not know its member id yet and cannot send heartbeats."""
    deadline_ms: int = 0
    """The session expires then, unless a heartbeat comes."""
    timer_ms: int = 0
    """When the session timer fires and compares the deadline. 0: no timer is set."""

    def extend_session(self, now_ms: int) -> None:
        """A heartbeat came. It is not the member's own while its first JoinGroup is pending."""
        if not self.is_new:
            self.deadline_ms = now_ms + self.session_timeout_ms

    def subscription(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""


class ClassicGroup:
    type: ClassVar[GroupType] = "classic"

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self.state = State.EMPTY
        self.previous_state = State.DEAD
        self.current_state_timestamp_ms = NO_TIMESTAMP
        """When the state was entered, by the last record."""
        self.protocol_type: str | None = None
        self.protocol_name: str | None = None
        self.generation = 0
        self.leader: str | None = None
        self.members: dict[str, ClassicMember] = {}
        self.instances: dict[str, str] = {}
        self.pending_join: dict[str, int] = {}
        """Member ids sent with MEMBER_ID_REQUIRED, each with its deadline."""
        self.pending_sync: set[str] = set()
        """Members of the new generation that have not sent SyncGroup."""
        self.awaiting_join = 0
        self.votes_for: dict[str, int] = {}
        self.subscribed_topics: frozenset[str] | None = None
        """None: unknown, because the protocol type is not `consumer` or no protocol is selected."""
        self.new_member_added = False
        """A member joined during the initial rebalance delay, which is then extended."""
        self.join_delay_ms = 0
        self.join_remaining_ms = 0

    # What classic and consumer groups answer

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
        # Members with unknown subscriptions may be subscribed to any topic.
        return self.speaks_consumer_protocol

    def check_member(self, member_id: str, instance_id: str | None) -> ClassicMember:
        """Check that the member exists and is the current one of its instance id. KafkaError if not."""
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
    ) -> CommitCheck | None:
        """KafkaError if the member may not commit. Partitions need no check."""
        if generation < 0 and self.state is State.EMPTY:
            # An admin client, or a consumer with manually assigned partitions.
            return None
        if generation >= 0 or member_id != NO_MEMBER or instance_id is not None:
            self.check_member(member_id, instance_id)
            if generation != self.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
        elif not transactional:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID)
        if not transactional and self.state is State.COMPLETING_REBALANCE:
            # The member has joined the new generation, so it must have revoked its partitions.
            raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        return None

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        """Any client may fetch offsets of a classic group."""

    def check_offset_delete(self) -> None:
        if self.state is not State.EMPTY and not self.speaks_consumer_protocol:
            # The subscriptions are unknown to the broker.
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def check_delete(self) -> None:
        if self.state is not State.EMPTY:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def tombstones(self) -> list[CoordinatorRecord]:
        return [CoordinatorRecord(encode_key(GroupMetadataKey(group=self.group_id)), None)]

    def offset_base_ms(self, offset: CommittedOffset) -> int | None:
        """When the retention of an offset starts. None: it does not expire now (G09)."""
        if self.protocol_type is None:
            return offset.commit_timestamp_ms
        if self.state is State.EMPTY:
            since_ms = self.current_state_timestamp_ms
            return since_ms if since_ms != NO_TIMESTAMP else offset.commit_timestamp_ms
        if self.state is State.STABLE and self.speaks_consumer_protocol and self.subscribed_topics is not None:
            return offset.commit_timestamp_ms
        return None

    def extend_session(self, member_id: str, now_ms: int) -> None:
        if self.state in (State.STABLE, State.PREPARING_REBALANCE):
            member = self.members.get(member_id)
            if member is not None:
                # No timer is needed: the deadline only moves later, and the timer compares it.
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
        """Remove a member. Its pending requests are answered before."""
        member = self.members.pop(member_id, None)
        self.pending_join.pop(member_id, None)
        self.pending_sync.discard(member_id)
        if member is None:
            return None
        assert member.join_token is None, "answer the pending JoinGroup first"
        assert member.sync_token is None, "answer the pending SyncGroup first"
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
        """Give a static member a new member id: it restarted."""
        assert member.instance_id is not None
        old_id = member.member_id
        # Keep the order of the members.
        self.members = {(new_id if member_id == old_id else member_id): other for member_id, other in self.members.items()}
        member.member_id = new_id
        self.instances[member.instance_id] = new_id
        if self.leader == old_id:
            self.leader = new_id
        if old_id in self.pending_sync:
            self.pending_sync.discard(old_id)
            self.pending_sync.add(new_id)

    def park_join(self, member: ClassicMember, token: Token) -> Token | None:
        """Keep a JoinGroup pending. Returns the one that was pending before, if any, which the caller answers."""
        before, member.join_token = member.join_token, token
        if before is None:
            self.awaiting_join += 1
        return before

    def take_join(self, member: ClassicMember) -> Token | None:
        """Remove and return the pending JoinGroup."""
        token, member.join_token = member.join_token, None
        if token is not None:
            self.awaiting_join -= 1
        return token

    def elect_joined_leader(self) -> bool:
        """Keep the leader if it has joined, else elect a member that has. False: none has."""
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
        """Whether one of the protocols is supported by all members."""
        if self.state is State.EMPTY:
            return bool(protocol_type) and bool(protocols)
        if self.protocol_type != protocol_type:
            return False
        size, votes = len(self.members), self.votes_for
        for name, _ in protocols:  # noqa: SIM110  a generator costs more on each JoinGroup
            if votes.get(name, 0) == size:
                return True
        return False

    def select_protocol(self) -> str:
        """Each member votes for its first protocol that all support; the most votes win (G03). Ties go to the first in the
        iteration order of Java's HashMap, as in Kafka."""
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
        # Most members have the same subscription: parse each one once.
        for subscription in {member.subscription(self.protocol_name) for member in self.members.values()}:
            names = subscribed_topics(subscription)
            if names is None:
                return None
            topics.update(names)
        return frozenset(topics)

    # The record

    def record(self, assignments: dict[str, bytes] | None = None) -> CoordinatorRecord:
        """The GroupMetadata record, with the given assignments or those that the members have."""
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
        """Become what the record says. Known members keep their pending requests and all their protocols."""
        if self.state is State.PREPARING_REBALANCE:
            # A rebalance in progress goes on: its members are not in the record.
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
    """Whether a member still matches its record. While a log is replayed, a later record may have changed it."""
    return (
        member.subscription(protocol) == written.subscription
        and member.instance_id == written.group_instance_id
        and member.session_timeout_ms == written.session_timeout
        and member.rebalance_timeout_ms == written.rebalance_timeout
    )


def _in_java_order(names: Collection[str]) -> list[str]:
    """The iteration order of a HashMap with these keys."""
    buckets = 16
    while len(names) > buckets * 3 // 4:
        buckets *= 2

    def bucket(name: str) -> int:
        code = string_hash(name)
        return (code ^ code >> 16) & (buckets - 1)

    return sorted(names, key=bucket)


def join_response(group: ClassicGroup, member: ClassicMember, *, with_members: bool = True) -> JoinGroupResponse:
    """The current generation; the leader gets the list of members."""
    members: list[JoinGroupResponseMember] = []
    if with_members and member.member_id == group.leader:
        members = [
            JoinGroupResponseMember(
                member_id=other.member_id,
                group_instance_id=other.instance_id,
                metadata=other.subscription(group.protocol_name),
            )
            for other in group.members.values()
        ]
    return JoinGroupResponse(
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name or "",
        leader=group.leader or "",
        member_id=member.member_id,
        members=members,
    )


def sync_response(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment)


def described_group(group_id: str, group: Group | None, version: int) -> DescribedGroup:
    """A group that is not classic is Dead here, as an unknown one."""
    if not isinstance(group, ClassicGroup):
        described = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
        if version >= _NOT_FOUND_FROM:
            described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
            described.error_message = (
                f"group {group_id} does not exist" if group is None else f"group {group_id} is not a classic group"
            )
        return described
    protocol = group.protocol_name if group.state is State.STABLE else None
    return DescribedGroup(
        group_id=group_id,
        group_state=group.state_name,
        protocol_type=group.protocol_type or "",
        protocol_data=protocol or "",
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.subscription(protocol),
                member_assignment=member.assignment,
            )
            for member in group.members.values()
        ],
    )
