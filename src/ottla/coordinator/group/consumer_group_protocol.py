"""The consumer group protocol (KIP-848, F40): members join, stay, reconcile and leave by ConsumerGroupHeartbeat.

Owns which members are admitted, fenced and removed, and the timers. `consumer_change` computes the effect of a change on the
group, `consumer_member` has the states of a member. `consumer_classic` serves classic members; `migration` converts groups.

1. A heartbeat without changes in a stable group writes nothing and costs a few comparisons.
2. A member with another epoch than the coordinator's is fenced (FENCED_MEMBER_EPOCH), unless it missed only the last reply and
   owns no partition that it must not own.
3. A member that does not revoke its partitions within its rebalance timeout is removed.
4. A static member that leaves temporarily (epoch -2) keeps its partitions until its session ends. A member that is still in the
   group keeps its instance id (UNRELEASED_INSTANCE_ID).
5. The durable state of a group is changed by `replay` only. The soft state is in `MemberDeadlines`.
"""

from __future__ import annotations

import logging
from dataclasses import replace
from typing import Any, Final

from ottla.coordinator.group import consumer_records as records
from ottla.coordinator.group import migration
from ottla.coordinator.group.assignors import Assignment, enabled
from ottla.coordinator.group.classic_group import ClassicGroup
from ottla.coordinator.group.classic_group_protocol import ClassicGroupProtocol
from ottla.coordinator.group.consumer_change import Change, ChangeContext
from ottla.coordinator.group.consumer_classic import ClassicMembers
from ottla.coordinator.group.consumer_group import ConsumerGroup, described
from ottla.coordinator.group.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    UNCHANGED,
    ConsumerMember,
    MemberState,
    Owned,
    check_epoch,
    check_instance,
    check_request,
)
from ottla.coordinator.group.group import Caller, Group, Groups, GroupType, Topics
from ottla.coordinator.group.member_deadlines import MemberDeadlines
from ottla.coordinator.group.subscription import MetadataHashes, topics_of_all
from ottla.coordinator.shard import Decision, Now, TimerKey, Token, replied
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_describe import DescribedGroup
from ottla.protocol.messages.consumer_group_heartbeat import Assignment as HeartbeatAssignment
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    ResponseTopicPartitions,
)

logger = logging.getLogger(__name__)


class ConsumerGroupProtocol:
    name: Final[GroupType] = "consumer"
    record_types: Final = frozenset({3, 4, 5, 6, 7, 8, 16})

    def __init__(self, groups: Groups, classic: ClassicGroupProtocol) -> None:
        self._groups = groups
        self._classic = classic
        self._hashes = MetadataHashes()
        self._deadlines: dict[str, MemberDeadlines] = {}
        self._topics: Topics = groups.topics
        self._topics_version = 0
        """Counts the changes of the set of topics: regular expressions are resolved again for each."""
        self.classic_members = ClassicMembers(self)

    @property
    def groups(self) -> Groups:
        return self._groups

    # ConsumerGroupHeartbeat

    def heartbeat(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, token: Token, now: Now) -> Decision:
        group = self._groups.by_id.get(request.group_id)
        if isinstance(group, ConsumerGroup) and self._has_nothing_new(group, request, caller, now):
            decision = Decision()
            self._extend_session(decision, group, group.members[request.member_id], now)
            return decision.reply(token, self._response(group.group_id, request.member_id, request.member_epoch))
        try:
            check_request(request, caller.version, self._groups.config)
            if request.member_epoch in (LEAVING_EPOCH, LEAVING_STATIC_EPOCH):
                return self._leave(request, token, now)
            return self._join_or_stay(request, caller, token, now)
        except KafkaError as error:
            return replied(token, ConsumerGroupHeartbeatResponse(error_code=error.code, error_message=error.detail))

    def _has_nothing_new(self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, caller: Caller, now: Now) -> bool:
        """Whether the heartbeat changes nothing, for a member that is reconciled in a stable group."""
        member = group.members.get(request.member_id)
        return (
            member is not None
            and request.member_epoch == member.epoch
            and request.member_epoch > JOINING_EPOCH
            and request.rebalance_timeout_ms == UNCHANGED
            and request.subscribed_topic_names is None
            and request.subscribed_topic_regex is None
            and request.server_assignor is None
            and request.rack_id is None
            and request.instance_id == member.instance_id
            and member.classic is None
            and member.client_id == caller.client_id
            and member.client_host == caller.client_host
            and member.is_reconciled_to(group.assignment_epoch)
            and group.epoch == group.assignment_epoch
            and self.deadlines_of(group.group_id).looked_at is self._groups.topics
            and not (group.patterns and self._patterns_are_old(group.group_id, now))
        )

    def _join_or_stay(self, request: ConsumerGroupHeartbeatRequest, caller: Caller, token: Token, now: Now) -> Decision:
        is_joining = request.member_epoch == JOINING_EPOCH
        decision = Decision()
        group, upgraded = self._group_for(decision, request.group_id, is_joining)
        member_id = request.member_id or caller.new_id
        self.check_room(group, member_id)
        owned = None
        if request.topic_partitions is not None:
            owned = {topic.topic_id: frozenset(topic.partitions) for topic in request.topic_partitions}
        before, replaced = self._member_for(group, request, member_id, owned)
        member = replace(
            before,
            instance_id=_or(request.instance_id, before.instance_id),
            rack_id=_or(request.rack_id, before.rack_id),
            rebalance_timeout_ms=(
                before.rebalance_timeout_ms if request.rebalance_timeout_ms == UNCHANGED else request.rebalance_timeout_ms
            ),
            server_assignor=_or(request.server_assignor, before.server_assignor),
            topic_names=(
                before.topic_names if request.subscribed_topic_names is None else frozenset(request.subscribed_topic_names)
            ),
            pattern=before.pattern if request.subscribed_topic_regex is None else request.subscribed_topic_regex,
            client_id=caller.client_id,
            client_host=caller.client_host,
            classic=None,
        )
        change = Change(group, self.change_context(group, caller, now), before, member, replaced, owned)
        change.write()
        # Nothing is refused from here on.
        decision.records += change.records
        if upgraded is not None:
            logger.info("Upgrading classic group %s to a consumer group: member %s joined", group.group_id, member_id)
            migration.answer_pending(decision, upgraded)
            for other in group.members.values():
                self._extend_session(decision, group, other, now)
        self.update_deadlines(decision, change)
        self._extend_session(decision, group, change.member, now)
        if is_joining:
            logger.info("Member %s joins consumer group %s at group epoch %d", member_id, group.group_id, change.epoch)
        response = self._response(group.group_id, member_id, change.member.epoch)
        says_all = (
            request.rebalance_timeout_ms != UNCHANGED
            and (request.subscribed_topic_names is not None or request.subscribed_topic_regex is not None)
            and request.topic_partitions is not None
        )
        if is_joining or says_all or change.member.assigned != before.assigned:
            response.assignment = _as_heartbeat_assignment(change.member.assigned)
        return decision.reply(token, response)

    def _group_for(self, decision: Decision, group_id: str, is_joining: bool) -> tuple[ConsumerGroup, ClassicGroup | None]:
        """The group, created or upgraded for a member that joins; and the classic group that it was."""
        found = self._groups.by_id.get(group_id)
        if isinstance(found, ConsumerGroup):
            return found, None
        if not is_joining:
            raise _not_found(group_id, found)
        if found is None:
            return ConsumerGroup(group_id), None
        if found.is_empty:
            decision.records += found.tombstones()
            return ConsumerGroup(group_id), None
        if not isinstance(found, ClassicGroup):
            raise _not_found(group_id, found)
        written = migration.upgrade(found, self._groups.topics, self._hashes, self._groups.config)
        decision.records += written
        draft = ConsumerGroup(group_id)
        for record in written:
            draft.replay_record(record)
        return draft, found

    def check_room(self, group: ConsumerGroup, member_id: str) -> None:
        size_max = self._groups.config.consumer_size_max
        if len(group.members) >= size_max and member_id not in group.members:
            raise KafkaError(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"group {group.group_id} has reached group.consumer.max.size={size_max} members",
            )

    def _member_for(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Assignment | None
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """The sender, created if it is new, and the static member that it replaces. KafkaError if it is fenced."""
        is_joining = request.member_epoch == JOINING_EPOCH
        instance_id = request.instance_id
        if instance_id is None:
            member = group.members.get(member_id) if is_joining else group.member(member_id)
            if member is None:
                return ConsumerMember(member_id), None
            check_epoch(member, request.member_epoch, owned)
            return member, None
        existing = group.static_member(instance_id)
        if is_joining:
            if existing is None:
                return group.members.get(member_id) or ConsumerMember(member_id), None
            if existing.classic is None and existing.epoch != LEAVING_STATIC_EPOCH:
                raise KafkaError(
                    ErrorCode.UNRELEASED_INSTANCE_ID,
                    f"instance id {instance_id} is in use by member {existing.member_id}: {member_id} cannot join with it",
                )
            return replace(existing, member_id=member_id, epoch=0, previous_epoch=0), existing
        existing = check_instance(existing, instance_id, member_id)
        check_epoch(existing, request.member_epoch, owned)
        return existing, None

    def _response(self, group_id: str, member_id: str, epoch: int) -> ConsumerGroupHeartbeatResponse:
        interval_ms = self._groups.config_of(group_id).consumer_heartbeat_interval_ms
        return ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=interval_ms)

    # Leaving

    def _leave(self, request: ConsumerGroupHeartbeatRequest, token: Token, now: Now) -> Decision:
        found = self._groups.by_id.get(request.group_id)
        if not isinstance(found, ConsumerGroup):
            raise _not_found(request.group_id, found)
        decision = Decision()
        if request.instance_id is None:
            member = found.member(request.member_id)
        else:
            member = check_instance(found.static_member(request.instance_id), request.instance_id, request.member_id)
        if request.member_epoch == LEAVING_STATIC_EPOCH:
            logger.info("Static member %s leaves consumer group %s temporarily", member.member_id, found.group_id)
            decision.records.append(records.current(found.group_id, member.away()))
            self.deadlines_of(found.group_id).cancel(decision, "rebalance", member.member_id)
        else:
            logger.info("Member %s leaves consumer group %s", member.member_id, found.group_id)
            self.remove(decision, found, {member.member_id}, now)
        response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
        return decision.reply(token, response)

    def remove(self, decision: Decision, group: ConsumerGroup, leaving: set[str], now: Now) -> None:
        """Remove members. If only classic members remain, the group becomes classic."""
        if not leaving:
            return
        if migration.may_downgrade(group, leaving, self._groups.config):
            self.downgrade(decision, group, leaving, None, now, "the last member with the consumer protocol left")
            return
        group_id = group.group_id
        deadlines = self.deadlines_of(group_id)
        for member_id in sorted(leaving):
            decision.records += records.no_member(group_id, member_id)
            deadlines.remove_member(decision, member_id)
        remaining = [member for member_id, member in group.members.items() if member_id not in leaving]
        used = {member.pattern for member in remaining}
        for expression in group.patterns:
            if expression not in used:
                decision.records.append(records.no_pattern(group_id, expression))
        metadata_hash = self._hashes.of(topics_of_all(remaining, group.patterns), self._groups.topics)
        decision.records.append(records.epoch(group_id, group.epoch + 1, metadata_hash))

    def downgrade(
        self,
        decision: Decision,
        group: ConsumerGroup,
        leaving: set[str],
        joining: ConsumerMember | None,
        now: Now,
        rebalance_reason: str | None,
    ) -> None:
        """Convert the group to a classic one, with the soft state of its members."""
        classic, written = migration.downgrade(group, leaving, joining, self._groups.topics, now.wall_ms)
        logger.info("Downgrading consumer group %s to a classic group", group.group_id)
        deadlines = self.deadlines_of(group.group_id)
        for member_id in group.members:
            deadlines.remove_member(decision, member_id)
        self._deadlines.pop(group.group_id, None)
        decision.records += written
        self._groups.by_id[group.group_id] = classic
        self._classic.start_sessions(decision, classic, now)
        if rebalance_reason is not None:
            self._classic.rebalance.prepare(decision, classic, now, rebalance_reason)

    # Deadlines

    def deadlines_of(self, group_id: str) -> MemberDeadlines:
        deadlines = self._deadlines.get(group_id)
        if deadlines is None:
            deadlines = self._deadlines[group_id] = MemberDeadlines(group_id)
        return deadlines

    def change_context(self, group: ConsumerGroup, caller: Caller, now: Now) -> ChangeContext:
        deadlines = self.deadlines_of(group.group_id)
        config, topics = self._groups.config_of(group.group_id), self._groups.topics
        return ChangeContext(
            topics,
            config,
            self._hashes,
            now,
            topics_may_differ=deadlines.looked_at is not topics,
            patterns_are_old=self._patterns_are_old(group.group_id, now),
            may_describe=caller.may_describe,
        )

    def _patterns_are_old(self, group_id: str, now: Now) -> bool:
        deadlines = self.deadlines_of(group_id)
        return (
            deadlines.patterns_of != self._topics_version
            or now.ms > deadlines.resolved_ms + self._groups.config.consumer_regex_refresh_interval_ms
        )

    def update_deadlines(self, decision: Decision, change: Change) -> None:
        """Update the soft state after a change."""
        deadlines = self.deadlines_of(change.group.group_id)
        context, member = change.context, change.member
        deadlines.looked_at = context.topics
        if context.patterns_are_old:
            deadlines.patterns_of = self._topics_version
            deadlines.resolved_ms = context.now.ms
        if change.replaced is not None and change.replaced.member_id != member.member_id:
            deadlines.remove_member(decision, change.replaced.member_id)
        if change.moved and member.classic is None:
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                due_ms = context.now.ms + member.rebalance_timeout_ms
                deadlines.start(decision, "rebalance", member.member_id, due_ms, member.epoch)
            else:
                deadlines.cancel(decision, "rebalance", member.member_id)

    def _extend_session(self, decision: Decision, group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
        config, classic = self._groups.config_of(group.group_id), member.classic
        timeout_ms = config.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
        self.deadlines_of(group.group_id).extend_session(decision, member.member_id, now.ms + timeout_ms)

    def on_loaded(self, now: Now) -> Decision:
        decision = Decision()
        for group in self._groups.by_id.values():
            if not isinstance(group, ConsumerGroup):
                continue
            for member in group.members.values():
                self._extend_session(decision, group, member, now)
                if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                    due_ms = now.ms + member.rebalance_timeout_ms
                    self.deadlines_of(group.group_id).start(decision, "rebalance", member.member_id, due_ms, member.epoch)
        return decision

    def on_timer(self, key: TimerKey, now: Now) -> Decision:
        _, what, group_id, member_id = key
        decision = Decision()
        group = self._groups.by_id.get(group_id)
        if not isinstance(group, ConsumerGroup) or member_id not in group.members:
            return decision
        deadlines, member = self.deadlines_of(group_id), group.members[member_id]
        match what:
            case "session":
                is_over = deadlines.session_is_over(decision, member_id, now.ms)
            case "rebalance":
                is_over = deadlines.is_over("rebalance", member_id, member.epoch)
            case "join":
                is_over = deadlines.is_over("join", member_id)
            case _:
                is_over = deadlines.is_over("sync", member_id)
        if is_over:
            logger.info("Removing member %s from consumer group %s: its %s timeout expired", member_id, group_id, what)
            self.remove(decision, group, {member_id}, now)
        return decision

    def topics_changed(self, now: Now) -> Decision:
        """Groups compare their topics again with the next heartbeat of a member."""
        before, self._topics = self._topics, self._groups.topics
        if before.topics.keys() != self._topics.topics.keys():
            self._topics_version += 1
        return Decision()

    # ConsumerGroupDescribe

    def describe(self, group_id: str) -> DescribedGroup:
        group = self._groups.by_id.get(group_id)
        if not isinstance(group, ConsumerGroup):
            raise _not_found(group_id, group)
        return described(group, self._groups.topics, enabled(self._groups.config.consumer_assignors)[0])

    # Replay

    def replay(self, record_type: int, key: Any, value: Any) -> None:
        by_id, group_id = self._groups.by_id, key.group_id
        found = by_id.get(group_id)
        if isinstance(found, ConsumerGroup):
            group = found
        elif value is None:
            # The group is deleted, or classic by now.
            return
        else:
            group = by_id[group_id] = ConsumerGroup(group_id)
        if record_type == 3 and value is None:
            del by_id[group_id]
            self._deadlines.pop(group_id, None)
        else:
            group.replay(record_type, key, value)


def _not_found(group_id: str, found: Group | None) -> KafkaError:
    detail = f"group {group_id} does not exist" if found is None else f"group {group_id} is not a consumer group"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, detail)


def _or(said: str | None, before: str | None) -> str | None:
    return before if said is None else said


def _as_heartbeat_assignment(assigned: Owned) -> HeartbeatAssignment:
    return HeartbeatAssignment(
        topic_partitions=[
            ResponseTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(assigned.items())
        ]
    )
