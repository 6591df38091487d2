"""One consumer group (KIP-848): its members, their target assignments, and the partitions they own.

Owns the durable state and its replay. Never decides when something changes: `consumer_group_protocol` does.

Three epochs: the group's counts the changes of members, subscriptions and topics; the assignment's is the group epoch for which
the target was computed; a member's is the assignment epoch it has come to.

    member epochs <= assignment epoch <= group epoch

1. Changed by `replay` only.
2. `owners[t][p]` is the one member that owns the partition or is revoking it; it is in that member's `assigned` or
   `pending_revocation`. (While a compacted log is replayed, the last one written counts.)
3. `instances` maps each static member's instance id to its member id.
4. The target assignment of a member is written before its current assignment has that epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, Final

from ottla.coordinator.group import consumer_records as records
from ottla.coordinator.group.assignors import Assignment
from ottla.coordinator.group.consumer_member import (
    LEAVING_EPOCH,
    NOTHING,
    ClassicMetadata,
    ConsumerMember,
    MemberState,
    Owned,
)
from ottla.coordinator.group.group import CommitCheck, GroupType, Topics
from ottla.coordinator.group.subscription import topics_of_all
from ottla.coordinator.shard import CoordinatorRecord
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.group_records import (
    ConsumerGroupCurrentMemberAssignmentValue,
    ConsumerGroupMemberMetadataValue,
    CurrentTopicPartitions,
    decode_record,
)
from ottla.protocol.messages.consumer_group_describe import Assignment as DescribedAssignment
from ottla.protocol.messages.consumer_group_describe import DescribedGroup, Member, TopicPartitions

if TYPE_CHECKING:
    from ottla.coordinator.group.committed_offset import CommittedOffset

FIRST_EPOCH: Final = 1
NO_ASSIGNMENT: Final[Assignment] = {}
_COMMIT_WITH_EPOCH_FROM: Final = 9
"""The version of OffsetCommit that carries a member epoch."""


_CLASSIC_MEMBER: Final = 0
_CONSUMER_MEMBER: Final = 1


@dataclass(frozen=True, slots=True)
class ResolvedPattern:
    topics: frozenset[str]
    resolved_ms: int


@dataclass(slots=True, eq=False)
class ConsumerGroup:
    type: ClassVar[GroupType] = "consumer"
    protocol_type: ClassVar[str] = "consumer"

    group_id: str
    epoch: int = FIRST_EPOCH
    metadata_hash: int = 0
    assignment_epoch: int = FIRST_EPOCH
    assignment_ms: int = 0
    """When the target assignment was computed; 0: never."""
    members: dict[str, ConsumerMember] = field(default_factory=dict)
    instances: dict[str, str] = field(default_factory=dict)
    target: dict[str, Assignment] = field(default_factory=dict)
    owners: dict[bytes, dict[int, str]] = field(default_factory=dict)
    patterns: dict[str, ResolvedPattern] = field(default_factory=dict)
    has_partition_metadata: bool = False
    """The log has a record that only Kafka 4.0 wrote. It is deleted with the next change."""
    _subscribed: frozenset[str] | None = None

    # What classic and consumer groups answer

    @property
    def state_name(self) -> str:
        if not self.members:
            return "Empty"
        if self.epoch > self.assignment_epoch:
            return "Assigning"
        if all(member.is_reconciled_to(self.assignment_epoch) for member in self.members.values()):
            return "Stable"
        return "Reconciling"

    @property
    def is_empty(self) -> bool:
        return not self.members

    @property
    def subscribed_topics(self) -> frozenset[str]:
        if self._subscribed is None:
            self._subscribed = topics_of_all(self.members.values(), self.patterns)
        return self._subscribed

    def is_subscribed_to(self, topic: str) -> bool:
        return topic in self.subscribed_topics

    def check_commit(
        self, member_id: str, instance_id: str | None, generation: int, version: int, *, transactional: bool = False
    ) -> CommitCheck | None:
        """KafkaError if the member may not commit. The returned function, if any, checks each partition."""
        if generation < 0 and not self.members:
            # An admin client, or a consumer with manually assigned partitions.
            return None
        if transactional and generation == -1 and not member_id and instance_id is None:
            return None
        member = self.member(member_id)
        if not transactional and member.classic is None and version < _COMMIT_WITH_EPOCH_FROM:
            raise KafkaError(
                ErrorCode.UNSUPPORTED_VERSION,
                f"members of consumer groups need OffsetCommit version {_COMMIT_WITH_EPOCH_FROM} or later",
            )
        if generation == member.epoch:
            return None
        if generation > member.epoch:
            raise _stale(member, f"member epoch {generation} is above the current one, {member.epoch}")

        def check(topic_id: bytes, topic: str, partition: int) -> None:
            assigned_epoch = member.epoch_of(topic_id, partition)
            if assigned_epoch is None:
                raise _stale(member, f"{topic}-{partition} is not assigned to the member")
            if generation < assigned_epoch:
                raise _stale(
                    member,
                    f"{topic}-{partition} was assigned to the member in epoch {assigned_epoch}, after epoch {generation}",
                )

        return check

    def check_fetch(self, member_id: str | None, member_epoch: int) -> None:
        if member_id is None and member_epoch < 0:
            return
        member = self.member(member_id or "")
        if member_epoch != member.epoch:
            raise _stale(member, f"the member epoch is {member.epoch}, not {member_epoch}")

    def check_offset_delete(self) -> None:
        """Offsets of topics without subscribers may always be deleted."""

    def check_delete(self) -> None:
        if self.members:
            raise KafkaError(ErrorCode.NON_EMPTY_GROUP)

    def tombstones(self) -> list[CoordinatorRecord]:
        gone = [record for member_id in self.members for record in records.no_member(self.group_id, member_id)]
        gone.append(records.no_target_epoch(self.group_id))
        gone += [records.no_pattern(self.group_id, expression) for expression in self.patterns]
        if self.has_partition_metadata:
            gone.append(records.no_partition_metadata(self.group_id))
        gone.append(records.no_group(self.group_id))
        return gone

    def offset_base_ms(self, offset: CommittedOffset) -> int | None:
        return offset.commit_timestamp_ms

    def extend_session(self, member_id: str, now_ms: int) -> None:
        """A commit does not extend the session in this protocol."""

    # Members

    def member(self, member_id: str) -> ConsumerMember:
        found = self.members.get(member_id)
        if found is None:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {self.group_id} has no member {member_id}")
        return found

    def static_member(self, instance_id: str | None) -> ConsumerMember | None:
        if instance_id is None:
            return None
        member_id = self.instances.get(instance_id)
        return None if member_id is None else self.members[member_id]

    def target_of(self, member_id: str) -> Assignment:
        return self.target.get(member_id, NO_ASSIGNMENT)

    def assignor(self, default: str) -> str:
        return assignor_for(self.members, default)

    def waits_for_others(self, member: ConsumerMember) -> bool:
        """Whether a partition of the member's target assignment is still owned by another member."""
        if member.state is not MemberState.UNRELEASED_PARTITIONS:
            return False
        for topic, partitions in self.target_of(member.member_id).items():
            has, owners = member.assigned.get(topic, {}), self.owners.get(topic, {})
            if any(partition not in has and partition in owners for partition in partitions):
                return True
        return False

    # Replay

    def replay_record(self, record: CoordinatorRecord) -> None:
        """Replay a record that is not in the log yet."""
        if isinstance(record.message, tuple):
            self.replay(*record.message)
            return
        decoded = decode_record(record.key, record.value)
        assert decoded is not None
        self.replay(*decoded)

    def replay(self, record_type: int, key: Any, value: Any) -> None:
        """Replay one record of an existing group. The caller handles the tombstone of the group."""
        match record_type:
            case 3:
                self._epoch_record(value.epoch, value.metadata_hash)
            case 4:
                self.has_partition_metadata = value is not None
            case 5:
                self._member_record(key.member_id, value)
            case 6 if value is None:
                self.assignment_epoch, self.assignment_ms = -1, 0
            case 6:
                self.assignment_epoch, self.assignment_ms = value.assignment_epoch, value.assignment_timestamp
            case 7 if value is None:
                self.target.pop(key.member_id, None)
            case 7:
                self.target[key.member_id] = {topic.topic_id: frozenset(topic.partitions) for topic in value.topic_partitions}
            case 8:
                self._current_record(key.member_id, value)
            case 16:
                self._subscribed = None
                if value is None:
                    self.patterns.pop(key.regular_expression, None)
                else:
                    self.patterns[key.regular_expression] = ResolvedPattern(frozenset(value.topics), value.timestamp)

    def _epoch_record(self, epoch: int, metadata_hash: int) -> None:
        self.epoch = epoch
        self.metadata_hash = metadata_hash

    def _member_record(self, member_id: str, value: ConsumerGroupMemberMetadataValue | None) -> None:
        member = self.members.get(member_id)
        if value is None:
            if member is not None:
                self._release(member)
                del self.members[member_id]
                if member.instance_id is not None and self.instances.get(member.instance_id) == member_id:
                    del self.instances[member.instance_id]
                self._subscribed = None
            return
        classic = value.classic_member_metadata
        self.members[member_id] = replace(
            member if member is not None else ConsumerMember(member_id),
            instance_id=value.instance_id,
            rack_id=value.rack_id,
            client_id=value.client_id,
            client_host=value.client_host,
            topic_names=frozenset(value.subscribed_topic_names),
            pattern=value.subscribed_topic_regex or "",
            rebalance_timeout_ms=value.rebalance_timeout_ms,
            server_assignor=value.server_assignor,
            classic=None
            if classic is None
            else ClassicMetadata(
                classic.session_timeout_ms,
                tuple((protocol.name, bytes(protocol.metadata)) for protocol in classic.supported_protocols),
            ),
        )
        if value.instance_id is not None:
            self.instances[value.instance_id] = member_id
        self._subscribed = None

    def _current_record(self, member_id: str, value: ConsumerGroupCurrentMemberAssignmentValue | None) -> None:
        member = self.members.get(member_id)
        if value is None:
            if member is not None:
                self._release(member)
                self.members[member_id] = replace(
                    member, epoch=LEAVING_EPOCH, previous_epoch=LEAVING_EPOCH, assigned=NOTHING, pending_revocation=NOTHING
                )
            return
        if member is None:
            member = ConsumerMember(member_id)
        else:
            self._release(member)
        member = self.members[member_id] = replace(
            member,
            epoch=value.member_epoch,
            previous_epoch=value.previous_member_epoch,
            state=MemberState.read(value.state),
            assigned=_owned(value.assigned_partitions, value.member_epoch),
            pending_revocation=_owned(value.partitions_pending_revocation, value.member_epoch),
        )
        for owned in (member.assigned, member.pending_revocation):
            for topic, partitions in owned.items():
                owners = self.owners.setdefault(topic, {})
                for partition in partitions:
                    owners[partition] = member_id

    def _release(self, member: ConsumerMember) -> None:
        for owned in (member.assigned, member.pending_revocation):
            for topic, partitions in owned.items():
                owners = self.owners.get(topic)
                if owners is None:
                    continue
                for partition in partitions:
                    if owners.get(partition) == member.member_id:
                        del owners[partition]
                if not owners:
                    del self.owners[topic]

    def facts(self) -> dict[str, Any]:
        """The durable state, for comparison in tests: equal for groups with the same log."""
        return {name: getattr(self, name) for name in self.__slots__ if not name.startswith("_")}


def _owned(written: list[CurrentTopicPartitions], member_epoch: int) -> Owned:
    """Without assignment epochs in the record, the member epoch is used."""
    owned: dict[bytes, dict[int, int]] = {}
    for topic in written:
        epochs = topic.assignment_epochs
        if epochs is None or len(epochs) != len(topic.partitions):
            epochs = [max(member_epoch, 0)] * len(topic.partitions)
        owned[topic.topic_id] = dict(zip(topic.partitions, epochs, strict=True))
    return owned


def _stale(member: ConsumerMember, detail: str) -> KafkaError:
    code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
    return KafkaError(code, detail)


def assignor_for(members: Mapping[str, ConsumerMember], default: str) -> str:
    """The assignor that most members request; ties go to the first by name."""
    votes: dict[str, int] = {}
    for member in members.values():
        if member.server_assignor is not None:
            votes[member.server_assignor] = votes.get(member.server_assignor, 0) + 1
    return min(votes, key=lambda name: (-votes[name], name), default=default)


def described(group: ConsumerGroup, topics: Topics, default_assignor: str) -> DescribedGroup:
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state_name,
        group_epoch=group.epoch,
        assignment_epoch=group.assignment_epoch,
        assignor_name=group.assignor(default_assignor),
        members=[_member(group, member, topics) for member in group.members.values()],
    )


def _member(group: ConsumerGroup, member: ConsumerMember, topics: Topics) -> Member:
    # Partitions that it is revoking are still its own.
    has = {
        topic_id: [*member.assigned.get(topic_id, ()), *member.pending_revocation.get(topic_id, ())]
        for topic_id in member.assigned.keys() | member.pending_revocation.keys()
    }
    return Member(
        member_id=member.member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=member.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.topic_names),
        subscribed_topic_regex=member.pattern,
        assignment=_named(has, topics),
        target_assignment=_named(group.target_of(member.member_id), topics),
        member_type=_CONSUMER_MEMBER if member.classic is None else _CLASSIC_MEMBER,
    )


def _named(partitions: Mapping[bytes, Iterable[int]], topics: Topics) -> DescribedAssignment:
    """An assignment with topic names, without deleted topics."""
    names = topics.topic_names
    return DescribedAssignment(
        topic_partitions=[
            TopicPartitions(topic_id=topic_id, topic_name=names[topic_id], partitions=sorted(numbers))
            for topic_id, numbers in sorted(partitions.items())
            if topic_id in names
        ]
    )
