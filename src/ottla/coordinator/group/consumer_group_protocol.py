"""Groups of the new protocol (KIP-848, F40): one request, ConsumerGroupHeartbeat, by which members join, stay, move and leave.

Owns who is let in, who is fenced, and when; which timers run. What a change means for the group is computed in `consumer_change`,
the states of a member are in `consumer_member`. Members that speak the classic protocol are served by `consumer_classic`, and
groups change their kind in `migration`.

1. A heartbeat that says nothing new to a group at rest writes nothing and costs a few comparisons.
2. A member whose epoch is not the one known here is fenced (FENCED_MEMBER_EPOCH), unless it lags by the one reply it may have
   missed and has nothing that it should not have.
3. A member that does not give up its partitions within its rebalance timeout is removed, so that others get them.
4. A static member that leaves for a while (-2) keeps its partitions until its session ends. One that is still here keeps its
   instance id from others (UNRELEASED_INSTANCE_ID).
5. The durable part of a group is changed by `replay` only; what is here besides is in `MemberDeadlines`.
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
from ottla.coordinator.group.consumer_change import Change, Setting
from ottla.coordinator.group.consumer_classic import ClassicMembers
from ottla.coordinator.group.consumer_describe import described
from ottla.coordinator.group.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer_member import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    LEAVING_STATIC_EPOCH,
    ConsumerMember,
    MemberState,
    Owned,
    check_instance,
)
from ottla.coordinator.group.consumer_request import UNCHANGED, check_epoch, check_request
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
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest
from ottla.protocol.messages.sync_group import SyncGroupRequest

logger = logging.getLogger(__name__)


class ConsumerGroupProtocol:
    name: Final[GroupType] = "consumer"
    record_types: Final = frozenset({3, 4, 5, 6, 7, 8, 16})

    def __init__(self, groups: Groups, classic: ClassicGroupProtocol) -> None:
        self._groups = groups
        self._classic = classic
        self._hashes = MetadataHashes()
        self._watches: dict[str, MemberDeadlines] = {}
        self._topics: Topics = groups.topics
        self._topics_version = 0
        """Counts the changes of the set of topics: patterns are resolved anew for each."""
        self._classic_members = ClassicMembers(self)

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
        """Whether the group is at rest, as far as this member goes, and it only says that it lives."""
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
            and self.watch(group.group_id).looked_at is self._groups.topics
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
        change = Change(group, self.setting(group, now), before, member, replaced, owned)
        change.write()
        # From here on nothing can be refused any more.
        decision.records += change.records
        if upgraded is not None:
            logger.info("group %s: upgraded to the consumer protocol by %s", group.group_id, member_id)
            migration.release_parked(decision, upgraded)
            for other in group.members.values():
                self._extend_session(decision, group, other, now)
        self.took_effect(decision, change)
        self._extend_session(decision, group, change.member, now)
        if is_joining:
            logger.info("group %s: %s joins at group epoch %d", group.group_id, member_id, change.epoch)
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
        """The group, made or upgraded for a member that joins; then also the classic group it was."""
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
                f"{group.group_id} has {size_max} members, and group.consumer.max.size allows no more",
            )

    def _member_for(
        self, group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest, member_id: str, owned: Assignment | None
    ) -> tuple[ConsumerMember, ConsumerMember | None]:
        """The member that speaks, a fresh one if it is new; and the static member whose place it takes. KafkaError if fenced."""
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
                    f"{existing.member_id} has the instance id {instance_id} and has not left: {member_id} cannot take its place",
                )
            return replace(existing, member_id=member_id, epoch=0, previous_epoch=0), existing
        existing = check_instance(existing, instance_id, member_id)
        check_epoch(existing, request.member_epoch, owned)
        return existing, None

    def _response(self, group_id: str, member_id: str, epoch: int) -> ConsumerGroupHeartbeatResponse:
        interval_ms = self._groups.config_of(group_id).consumer_heartbeat_interval_ms
        return ConsumerGroupHeartbeatResponse(member_id=member_id, member_epoch=epoch, heartbeat_interval_ms=interval_ms)

    # Who goes

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
            logger.info("group %s: static member %s leaves for a while", found.group_id, member.member_id)
            decision.records.append(records.current(found.group_id, member.away()))
            self.watch(found.group_id).came(decision, "rebalance", member.member_id)
        else:
            logger.info("group %s: %s leaves", found.group_id, member.member_id)
            self.remove(decision, found, {member.member_id}, now)
        response = ConsumerGroupHeartbeatResponse(member_id=member.member_id, member_epoch=request.member_epoch)
        return decision.reply(token, response)

    def remove(self, decision: Decision, group: ConsumerGroup, leaving: set[str], now: Now) -> None:
        """Members go. If only classic ones remain, the group becomes classic."""
        if not leaving:
            return
        if migration.may_downgrade(group, leaving, self._groups.config):
            self.downgrade(decision, group, leaving, None, now, "the last member of the consumer protocol left")
            return
        group_id = group.group_id
        watch = self.watch(group_id)
        for member_id in sorted(leaving):
            decision.records += records.no_member(group_id, member_id)
            watch.member_gone(decision, member_id)
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
        """The group becomes classic at once: its members' soft state is that of a classic group from now on."""
        classic, written = migration.downgrade(group, leaving, joining, self._groups.topics, now.wall_ms)
        logger.info("group %s: downgraded to the classic protocol", group.group_id)
        watch = self.watch(group.group_id)
        for member_id in group.members:
            watch.member_gone(decision, member_id)
        self._watches.pop(group.group_id, None)
        decision.records += written
        self._groups.by_id[group.group_id] = classic
        self._classic.start_sessions(decision, classic, now)
        if rebalance_reason is not None:
            self._classic.prepare_rebalance(decision, classic, now, rebalance_reason)

    # Time

    def watch(self, group_id: str) -> MemberDeadlines:
        watch = self._watches.get(group_id)
        if watch is None:
            watch = self._watches[group_id] = MemberDeadlines(group_id)
        return watch

    def setting(self, group: ConsumerGroup, now: Now) -> Setting:
        watch = self.watch(group.group_id)
        config, topics = self._groups.config_of(group.group_id), self._groups.topics
        return Setting(
            topics,
            config,
            self._hashes,
            now,
            topics_may_differ=watch.looked_at is not topics,
            patterns_are_old=self._patterns_are_old(group.group_id, now),
        )

    def _patterns_are_old(self, group_id: str, now: Now) -> bool:
        watch = self.watch(group_id)
        return (
            watch.patterns_of != self._topics_version
            or now.ms > watch.resolved_ms + self._groups.config.consumer_regex_refresh_interval_ms
        )

    def took_effect(self, decision: Decision, change: Change) -> None:
        """Note what a change means for the timers, and what was looked at for it."""
        watch = self.watch(change.group.group_id)
        setting, member = change.setting, change.member
        watch.looked_at = setting.topics
        if setting.patterns_are_old:
            watch.patterns_of = self._topics_version
            watch.resolved_ms = setting.now.ms
        if change.replaced is not None and change.replaced.member_id != member.member_id:
            watch.member_gone(decision, change.replaced.member_id)
        if change.moved and member.classic is None:
            if member.state is MemberState.UNREVOKED_PARTITIONS:
                due_ms = setting.now.ms + member.rebalance_timeout_ms
                watch.expect(decision, "rebalance", member.member_id, due_ms, member.epoch)
            else:
                watch.came(decision, "rebalance", member.member_id)

    def _extend_session(self, decision: Decision, group: ConsumerGroup, member: ConsumerMember, now: Now) -> None:
        config, classic = self._groups.config_of(group.group_id), member.classic
        timeout_ms = config.consumer_session_timeout_ms if classic is None else classic.session_timeout_ms
        self.watch(group.group_id).extend_session(decision, member.member_id, now.ms + timeout_ms)

    def on_loaded(self, now: Now) -> Decision:
        decision = Decision()
        for group in self._groups.by_id.values():
            if not isinstance(group, ConsumerGroup):
                continue
            for member in group.members.values():
                self._extend_session(decision, group, member, now)
                if member.state is MemberState.UNREVOKED_PARTITIONS and member.classic is None:
                    due_ms = now.ms + member.rebalance_timeout_ms
                    self.watch(group.group_id).expect(decision, "rebalance", member.member_id, due_ms, member.epoch)
        return decision

    def on_timer(self, key: TimerKey, now: Now) -> Decision:
        _, what, group_id, member_id = key
        decision = Decision()
        group = self._groups.by_id.get(group_id)
        if not isinstance(group, ConsumerGroup) or member_id not in group.members:
            return decision
        watch, member = self.watch(group_id), group.members[member_id]
        match what:
            case "session":
                is_over = watch.session_is_over(decision, member_id, now.ms)
            case "rebalance":
                is_over = watch.is_missed("rebalance", member_id, member.epoch)
            case "join":
                is_over = watch.is_missed("join", member_id)
            case _:
                is_over = watch.is_missed("sync", member_id)
        if is_over:
            logger.info("group %s: %s is removed, its %s timeout is over", group_id, member_id, what)
            self.remove(decision, group, {member_id}, now)
        return decision

    def topics_changed(self, now: Now) -> Decision:
        """Groups look at their topics again with the next heartbeat of a member."""
        before, self._topics = self._topics, self._groups.topics
        if before.topics.keys() != self._topics.topics.keys():
            self._topics_version += 1
        return Decision()

    # Requests of the classic protocol to a group of this kind

    def join_group(self, group: Group, request: JoinGroupRequest, caller: Caller, token: Token, now: Now) -> Decision:
        return self._classic_members.join_group(_of_this_kind(group), request, caller, token, now)

    def sync_group(self, group: Group, request: SyncGroupRequest, token: Token, now: Now) -> Decision:
        return self._classic_members.sync_group(_of_this_kind(group), request, token, now)

    def classic_heartbeat(self, group: Group, request: HeartbeatRequest, token: Token, now: Now) -> Decision:
        return self._classic_members.heartbeat(_of_this_kind(group), request, token, now)

    def leave_group(self, group: Group, request: LeaveGroupRequest, token: Token, now: Now) -> Decision:
        return self._classic_members.leave_group(_of_this_kind(group), request, token, now)

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
            # Of a group that is gone, or classic by now.
            return
        else:
            group = by_id[group_id] = ConsumerGroup(group_id)
        if record_type == 3 and value is None:
            del by_id[group_id]
            self._watches.pop(group_id, None)
        else:
            group.replay(record_type, key, value)


def _not_found(group_id: str, found: Group | None) -> KafkaError:
    detail = f"there is no group {group_id}" if found is None else f"{group_id} is a group of another protocol than `consumer`"
    return KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, detail)


def _or(said: str | None, before: str | None) -> str | None:
    return before if said is None else said


def _of_this_kind(group: Group) -> ConsumerGroup:
    assert isinstance(group, ConsumerGroup)
    return group


def _as_heartbeat_assignment(assigned: Owned) -> HeartbeatAssignment:
    return HeartbeatAssignment(
        topic_partitions=[
            ResponseTopicPartitions(topic_id=topic_id, partitions=sorted(partitions))
            for topic_id, partitions in sorted(assigned.items())
        ]
    )
