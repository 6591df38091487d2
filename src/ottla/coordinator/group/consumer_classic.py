"""Classic members of a consumer group: JoinGroup, SyncGroup, Heartbeat and LeaveGroup (F40).

Owns how classic requests are answered from the state of a consumer group. The generation is the member epoch. There is no leader:
JoinGroup works like a full heartbeat, SyncGroup returns the assignment of the coordinator, and Heartbeat returns
REBALANCE_IN_PROGRESS when the member has to join again.

1. Each request is answered at once. No member waits for others.
2. `owned_partitions` of a member (empty for eager ones) is what it has not revoked yet.
3. A member has its rebalance timeout to join again, and after that once more to sync.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group import migration
from ottla.coordinator.group.classic_group import CONSUMER_PROTOCOL, Protocols
from ottla.coordinator.group.consumer_change import Change
from ottla.coordinator.group.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer_member import ClassicMetadata, ConsumerMember, MemberState, check_instance, partitions_of
from ottla.coordinator.group.consumer_protocol import (
    ConsumerProtocolSubscription,
    by_topic_id,
    read_subscription,
    version_of,
    write_assignment,
)
from ottla.coordinator.group.group import NO_MEMBER, Caller
from ottla.coordinator.shard import Decision, Now, Token, replied
from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

if TYPE_CHECKING:
    from ottla.coordinator.group.consumer_group_protocol import ConsumerGroupProtocol

_MEMBER_ID_REQUIRED_FROM: Final = 4


class ClassicMembers:
    def __init__(self, consumer: ConsumerGroupProtocol) -> None:
        self._consumer = consumer

    # JoinGroup

    def join_group(self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, token: Token, now: Now) -> Decision:
        config = self._consumer.groups.config
        if not config.session_timeout_min_ms <= request.session_timeout_ms <= config.session_timeout_max_ms:
            refusal = JoinGroupResponse(error_code=ErrorCode.INVALID_SESSION_TIMEOUT, member_id=request.member_id)
            return replied(token, refusal)
        try:
            return self._join(group, request, caller, token, now)
        except KafkaError as error:
            return replied(token, JoinGroupResponse(error_code=error.code))

    def _join(self, group: ConsumerGroup, request: JoinGroupRequest, caller: Caller, token: Token, now: Now) -> Decision:
        consumer = self._consumer
        config = consumer.groups.config
        is_unknown = request.member_id == NO_MEMBER
        member_id = caller.new_id if is_unknown else request.member_id
        consumer.check_room(group, member_id)
        protocols = tuple((protocol.name, bytes(protocol.metadata)) for protocol in request.protocols)
        _check_protocols(group, member_id, request.protocol_type, protocols)
        if is_unknown and request.group_instance_id is None and caller.version >= _MEMBER_ID_REQUIRED_FROM:
            return replied(token, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=member_id))
        subscription = _subscription(member_id, protocols)
        before, replaced = self._member_for(group, request.group_instance_id, member_id, is_unknown)
        # Version 0 has one timeout for sessions and rebalances.
        rebalance_timeout_ms = request.rebalance_timeout_ms if caller.version >= 1 else request.session_timeout_ms
        member = replace(
            before,
            instance_id=before.instance_id if request.group_instance_id is None else request.group_instance_id,
            rack_id=subscription.rack_id or before.rack_id,
            rebalance_timeout_ms=rebalance_timeout_ms,
            topic_names=frozenset(subscription.topics),
            pattern="",
            client_id=caller.client_id,
            client_host=caller.client_host,
            classic=ClassicMetadata(request.session_timeout_ms, protocols),
        )
        owned = by_topic_id(subscription.owned_partitions, consumer.groups.topics)
        change = Change(group, consumer.change_context(group, caller, now), before, member, replaced, owned)
        change.write_member()
        change.write_epoch()
        decision = Decision()
        if replaced is not None and migration.may_downgrade(group, {replaced.member_id}, config, replaced=True):
            self._join_by_downgrade(decision, change, replaced, now)
        else:
            change.write_target_and_step()
            decision.records += change.records
            consumer.update_deadlines(decision, change)
            deadlines = consumer.deadlines_of(group.group_id)
            deadlines.cancel(decision, "join", member_id)
            deadlines.extend_session(decision, member_id, now.ms + request.session_timeout_ms)
            deadlines.start(decision, "sync", member_id, now.ms + rebalance_timeout_ms)
        response = JoinGroupResponse(
            member_id=member_id,
            generation_id=change.member.epoch,
            protocol_type=CONSUMER_PROTOCOL,
            protocol_name=protocols[0][0],
        )
        return decision.reply(token, response)

    def _join_by_downgrade(self, decision: Decision, change: Change, replaced: ConsumerMember, now: Now) -> None:
        """The classic member replaces the last one with the consumer protocol: the group becomes classic."""
        group = change.group
        is_stale = group.assignment_epoch < change.epoch
        if not is_stale:
            change.step(group.assignment_epoch, group.target_of(replaced.member_id))
        reason = "downgraded with an outdated assignment" if is_stale else None
        self._consumer.downgrade(decision, group, {replaced.member_id}, change.member, now, reason)

    def _member_for(
        self, group: ConsumerGroup, instance_id: str | None, member_id: str, is_unknown: bool
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """The member that joins, created if it is new, and the static member that it replaces. KafkaError if it is fenced."""
        if instance_id is None:
            return group.members.get(member_id) or ConsumerMember(member_id), None
        existing = group.static_member(instance_id)
        if not is_unknown:
            return check_instance(existing, instance_id, member_id), None
        if existing is None:
            return ConsumerMember(member_id), None
        return replace(existing, member_id=member_id, epoch=0, previous_epoch=0), existing

    # SyncGroup

    def sync_group(self, group: ConsumerGroup, request: SyncGroupRequest, token: Token, now: Now) -> Decision:
        decision = Decision()
        deadlines = self._consumer.deadlines_of(group.group_id)
        try:
            member, classic = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
            protocol_name, subscription = classic.protocols[0]
            if request.protocol_type not in (None, CONSUMER_PROTOCOL) or request.protocol_name not in (None, protocol_name):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if group.assignment_epoch > member.epoch and member.state is not MemberState.UNREVOKED_PARTITIONS:
                # There is a newer assignment since it joined.
                due_ms = now.ms + member.rebalance_timeout_ms
                deadlines.start_unless_pending(decision, "join", member.member_id, due_ms)
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        except KafkaError as error:
            return decision.reply(token, SyncGroupResponse(error_code=error.code))
        deadlines.cancel(decision, "sync", member.member_id)
        deadlines.extend_session(decision, member.member_id, now.ms + classic.session_timeout_ms)
        assignment = write_assignment(partitions_of(member.assigned), self._consumer.groups.topics, version_of(subscription))
        return decision.reply(
            token,
            SyncGroupResponse(protocol_type=request.protocol_type, protocol_name=request.protocol_name, assignment=assignment),
        )

    # Heartbeat

    def heartbeat(self, group: ConsumerGroup, request: HeartbeatRequest, token: Token, now: Now) -> Decision:
        try:
            member, classic = _classic_member(group, request.member_id, request.group_instance_id, request.generation_id)
        except KafkaError as error:
            return replied(token, HeartbeatResponse(error_code=error.code))
        decision = Decision()
        deadlines = self._consumer.deadlines_of(group.group_id)
        deadlines.extend_session(decision, member.member_id, now.ms + classic.session_timeout_ms)
        if (
            member.epoch < group.assignment_epoch
            or member.state is MemberState.UNREVOKED_PARTITIONS
            or (member.state is MemberState.UNRELEASED_PARTITIONS and not group.waits_for_others(member))
        ):
            deadlines.start_unless_pending(decision, "join", member.member_id, now.ms + member.rebalance_timeout_ms)
            return decision.reply(token, HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        return decision.reply(token, HeartbeatResponse())

    # LeaveGroup

    def leave_group(self, group: ConsumerGroup, request: LeaveGroupRequest, token: Token, now: Now) -> Decision:
        answers: list[MemberResponse] = []
        leaving: set[str] = set()
        for asked in request.members:
            answer = MemberResponse(member_id=asked.member_id, group_instance_id=asked.group_instance_id)
            answers.append(answer)
            try:
                leaving.add(_leaving_member(group, asked.member_id, asked.group_instance_id).member_id)
            except KafkaError as error:
                answer.error_code = error.code
        decision = Decision()
        self._consumer.remove(decision, group, leaving, now)
        return decision.reply(token, LeaveGroupResponse(members=answers))


def _check_protocols(group: ConsumerGroup, member_id: str, protocol_type: str, protocols: Protocols) -> None:
    """KafkaError if no protocol is common to all classic members."""
    classics = [
        {name for name, _ in other.classic.protocols}
        for other_id, other in group.members.items()
        if other.classic is not None and other_id != member_id
    ]
    if protocol_type != CONSUMER_PROTOCOL or not any(all(name in names for names in classics) for name, _ in protocols):
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"member {member_id} supports no protocol that all classic members of the group support",
        )


def _subscription(member_id: str, protocols: Protocols) -> ConsumerProtocolSubscription:
    """The subscription of the member's first protocol. KafkaError if it cannot be parsed."""
    try:
        return read_subscription(protocols[0][1])
    except MalformedInput as malformed:
        raise KafkaError(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL, f"the subscription of member {member_id} cannot be parsed: {malformed}"
        ) from None


def _classic_member(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> tuple[ConsumerMember, ClassicMetadata]:
    if instance_id is None:
        member = group.member(member_id)
    else:
        member = check_instance(group.static_member(instance_id), instance_id, member_id)
    if member.classic is None:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"member {member_id} uses the consumer protocol")
    if generation != member.epoch:
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
    return member, member.classic


def _leaving_member(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ConsumerMember:
    if instance_id is None:
        return group.member(member_id)
    existing = group.static_member(instance_id)
    if existing is not None and member_id == NO_MEMBER:
        # An admin client removes a static member by its instance id.
        return existing
    return check_instance(existing, instance_id, member_id)
