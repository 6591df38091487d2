"""Online migration of groups between the classic and the consumer protocol.

Owns when a group may be converted, and the result. Never decides that a member joins or leaves.

Upgrade: a member with the consumer protocol joins a classic group. The group becomes a consumer group with its generation as
epoch. Its members keep their partitions and go on with the classic protocol.
Downgrade: the last member with the consumer protocol leaves, and classic members remain. The group becomes classic with its epoch
as generation, and rebalances.

1. A conversion is one batch of records: the tombstones of one kind and the records of the other.
2. An upgrade moves no partition. A downgrade makes the target assignment that of a generation, which rebalances at once unless
   all members had reconciled.
3. An upgrade is refused if an assignment has user data of the client-side assignor: server-side assignors would lose it.
"""

from __future__ import annotations

from ottla.coordinator.group import consumer_records as records
from ottla.coordinator.group.classic_group import CONSUMER_PROTOCOL, ClassicGroup, ClassicMember, State
from ottla.coordinator.group.consumer_group import FIRST_EPOCH, ConsumerGroup
from ottla.coordinator.group.consumer_member import ClassicMetadata, ConsumerMember
from ottla.coordinator.group.consumer_protocol import (
    ConsumerProtocolSubscription,
    by_topic_id,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from ottla.coordinator.group.group import GroupConfig, Topics
from ottla.coordinator.group.subscription import MetadataHashes
from ottla.coordinator.shard import CoordinatorRecord, Decision
from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse


def _allows(config: GroupConfig, direction: str) -> bool:
    return config.consumer_migration_policy.lower() in ("bidirectional", direction)


# Upgrade


def upgrade(group: ClassicGroup, topics: Topics, hashes: MetadataHashes, config: GroupConfig) -> list[CoordinatorRecord]:
    """The records that convert a classic group to a consumer group. KafkaError if it cannot be converted."""
    if not _allows(config, "upgrade"):
        raise _cannot_upgrade(group, "group.consumer.migration.policy does not allow it")
    if group.protocol_type != CONSUMER_PROTOCOL:
        raise _cannot_upgrade(group, "its protocol type is not `consumer`")
    if len(group.members) > config.consumer_size_max:
        raise _cannot_upgrade(group, "it has more members than group.consumer.max.size")
    try:
        had = _partitions_of(group, topics)
        members = [_as_consumer_member(group, member, had[member.member_id]) for member in group.members.values()]
    except MalformedInput:
        raise _cannot_upgrade(group, "the subscription or assignment of a member cannot be parsed") from None
    group_id, epoch = group.group_id, _epoch_of(group)
    names = frozenset[str]().union(*(member.topic_names for member in members))
    written = group.tombstones()
    written += [records.member(group_id, member) for member in members]
    written.append(records.epoch(group_id, epoch, hashes.of(names, topics)))
    written += [
        records.target(group_id, member.member_id, {topic: frozenset(owned) for topic, owned in member.assigned.items()})
        for member in members
    ]
    written.append(records.target_epoch(group_id, epoch, 0))
    written += [records.current(group_id, member) for member in members]
    return written


def _epoch_of(group: ClassicGroup) -> int:
    """The generation, but at least 1: epoch 0 means joining."""
    return max(group.generation, FIRST_EPOCH)


def _subscription_of(group: ClassicGroup, member: ClassicMember) -> ConsumerProtocolSubscription:
    # During a rebalance a new member may not support the protocol of the previous generation.
    return read_subscription(member.subscription(group.protocol_name) or member.protocols[0][1])


def _partitions_of(group: ClassicGroup, topics: Topics) -> dict[str, dict[bytes, frozenset[int]]]:
    """The partitions that each member owns: its assignment.

    During a rebalance a member may own more. A cooperative one keeps its partitions until it gets a new assignment, and the group
    drops assignments when a rebalance starts before the previous one has ended. So a member without its new assignment also owns
    what it reported in JoinGroup. No partition counts for two members.
    """
    found: dict[str, dict[bytes, frozenset[int]]] = {member_id: {} for member_id in group.members}
    taken: set[tuple[bytes, int]] = set()

    def take(member: ClassicMember, said: dict[bytes, frozenset[int]]) -> None:
        has = found[member.member_id]
        for topic, partitions in said.items():
            free = frozenset(partition for partition in partitions if (topic, partition) not in taken)
            if free:
                has[topic] = has.get(topic, frozenset()) | free
                taken.update((topic, partition) for partition in free)

    for member in group.members.values():
        assignment = read_assignment(member.assignment)
        if assignment.user_data:
            raise _cannot_upgrade(group, "its assignor stores user data in the assignment; use one that does not, such as range")
        take(member, by_topic_id(assignment.assigned_partitions, topics))
    for member in group.members.values():
        if group.state is not State.STABLE or member.member_id in group.pending_sync:
            take(member, by_topic_id(_subscription_of(group, member).owned_partitions, topics))
    return found


def _as_consumer_member(group: ClassicGroup, member: ClassicMember, had: dict[bytes, frozenset[int]]) -> ConsumerMember:
    subscription = _subscription_of(group, member)
    epoch = _epoch_of(group)
    return ConsumerMember(
        member.member_id,
        epoch=epoch,
        previous_epoch=epoch,
        instance_id=member.instance_id,
        rack_id=subscription.rack_id or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms,
        client_id=member.client_id,
        client_host=member.client_host,
        topic_names=frozenset(subscription.topics),
        assigned={topic_id: dict.fromkeys(sorted(partitions), epoch) for topic_id, partitions in had.items()},
        classic=ClassicMetadata(member.session_timeout_ms, member.protocols),
    )


def _cannot_upgrade(group: ClassicGroup, reason: str) -> KafkaError:
    return KafkaError(
        ErrorCode.GROUP_ID_NOT_FOUND, f"classic group {group.group_id} cannot be upgraded to a consumer group: {reason}"
    )


def answer_pending(decision: Decision, group: ClassicGroup) -> None:
    """Answer the pending requests of an upgraded group: their members rejoin, now in the consumer group."""
    for member in group.members.values():
        token = group.take_join(member)
        if token is not None:
            decision.reply(token, JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))
        token, member.sync_token = member.sync_token, None
        if token is not None:
            decision.reply(token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))


# Downgrade


def may_downgrade(group: ConsumerGroup, leaving: set[str], config: GroupConfig, *, replaced: bool = False) -> bool:
    """Whether the group may become classic: without the leaving members only classic ones remain.

    With `replaced`, a classic member replaces the leaving one.
    """
    remaining = [member for member_id, member in group.members.items() if member_id not in leaving]
    size = len(remaining) + replaced
    if not size or any(member.classic is None for member in remaining):
        return False
    if replaced and any(group.members[member_id].classic is not None for member_id in leaving):
        return False
    return _allows(config, "downgrade") and size <= config.size_max


def downgrade(
    group: ConsumerGroup,
    leaving: set[str],
    joining: ConsumerMember | None,
    topics: Topics,
    wall_ms: int,
) -> tuple[ClassicGroup, list[CoordinatorRecord]]:
    """The classic group, and the records of the conversion. KafkaError if a member's subscription cannot be parsed.

    `joining` replaces the leaving member.
    """
    classic = ClassicGroup(group.group_id)
    classic.generation = group.epoch
    members = [(member, member_id) for member_id, member in group.members.items() if member_id not in leaving]
    if joining is not None:
        (replaced_id,) = leaving
        members.append((joining, replaced_id))
    for member, _ in members:
        assert member.classic is not None
        classic.add(
            ClassicMember(
                member.member_id,
                member.instance_id,
                member.client_id,
                member.client_host,
                member.rebalance_timeout_ms,
                member.classic.session_timeout_ms,
                member.classic.protocols,
            ),
            CONSUMER_PROTOCOL,
            None,
        )
    classic.protocol_name = classic.select_protocol()
    try:
        for member, target_id in members:
            became = classic.members[member.member_id]
            version = version_of(became.subscription(classic.protocol_name))
            became.assignment = write_assignment(group.target_of(target_id), topics, version)
    except MalformedInput:
        raise KafkaError(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"consumer group {group.group_id} cannot be downgraded: the subscription of a classic member cannot be parsed",
        ) from None
    classic.previous_state, classic.state = State.EMPTY, State.STABLE
    classic.current_state_timestamp_ms = wall_ms
    classic.subscribed_topics = classic.find_subscribed_topics()
    return classic, [*group.tombstones(), classic.record()]
