"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (F33, F35, F36, F38, F39).

Owns the replay of groups and what SyncGroup, Heartbeat and LeaveGroup are answered. `classic_join` decides JoinGroup,
`classic_rebalance` leads a group from one generation to the next. The states and their transitions are in `classic_group`.

The log has each generation with its assignment, and the change to Empty. It has no rebalance in progress: after a failover the
group is as before it, and its members join again when they get ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from ottla.coordinator.group.classic_group import ClassicGroup, State, sync_response
from ottla.coordinator.group.classic_join import ClassicJoin
from ottla.coordinator.group.classic_rebalance import ClassicRebalance, sync_key
from ottla.coordinator.group.group import NO_MEMBER, Caller, Groups, GroupType
from ottla.coordinator.shard import Decision, Now, TimerKey, Token, replied
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger(__name__)

_BATCH_OVERHEAD_BYTES: Final = 128
"""Upper bound of what a batch with one record adds to key and value."""


class ClassicGroupProtocol:
    name: Final[GroupType] = "classic"
    record_types: Final = frozenset({2})

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self.rebalance = ClassicRebalance(groups)
        self._join = ClassicJoin(groups, self.rebalance)

    # The shard's calls

    def replay(self, record_type: int, key: Any, value: Any) -> None:
        by_id = self._groups.by_id
        group = by_id.get(key.group)
        if value is None:
            if isinstance(group, ClassicGroup):
                del by_id[key.group]
            return
        if not isinstance(group, ClassicGroup):
            group = by_id[key.group] = ClassicGroup(key.group)
        group.replay(value)

    def make_simple_group(self, group_id: str) -> None:
        """Create a group that has offsets and never had members."""
        self._groups.by_id[group_id] = ClassicGroup(group_id)

    def on_loaded(self, now: Now) -> Decision:
        decision = Decision()
        for group in list(self._groups.by_id.values()):
            if not isinstance(group, ClassicGroup):
                continue
            self.start_sessions(decision, group, now)
            if len(group.members) > self._groups.config.size_max:
                # group.max.size was lowered: the last members to join are refused.
                self.rebalance.prepare(decision, group, now, "the loaded group has more members than group.max.size")
        return decision

    def start_sessions(self, decision: Decision, group: ClassicGroup, now: Now) -> None:
        """Start the session timeouts of all members."""
        for member in group.members.values():
            self.rebalance.restart_session(decision, group, member, now)

    def topics_changed(self, now: Now) -> Decision:
        """Nothing: members of classic groups watch their topics themselves."""
        return Decision()

    def on_timer(self, key: TimerKey, now: Now) -> Decision:
        decision = Decision()
        group = self._groups.by_id.get(key[2])
        if isinstance(group, ClassicGroup):
            match key[1]:
                case "session":
                    self.rebalance.session_timer(decision, group, key[3], now)
                case "join":
                    self.rebalance.join_timer(decision, group, now)
                case "sync":
                    self.rebalance.sync_timer(decision, group, now)
        return decision

    # Requests

    def join_group(self, request: JoinGroupRequest, caller: Caller, token: Token, now: Now) -> Decision:
        """The group is classic, or of another kind and empty, or does not exist."""
        return self._join.decide(request, caller, token, now)

    def sync_group(self, group: ClassicGroup, request: SyncGroupRequest, token: Token, now: Now) -> Decision:
        """The group is not empty."""
        decision = Decision()
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
            if request.generation_id != group.generation:
                raise KafkaError(ErrorCode.ILLEGAL_GENERATION)
            if _differs(request.protocol_type, group.protocol_type) or _differs(request.protocol_name, group.protocol_name):
                raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            if group.state is State.PREPARING_REBALANCE:
                raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS)
        except KafkaError as error:
            return decision.reply(token, SyncGroupResponse(error_code=error.code))
        group.pending_sync.discard(member.member_id)
        if not group.pending_sync:
            decision.cancel_timer(sync_key(group))
        if group.state is State.STABLE:
            return decision.reply(token, sync_response(group, member.assignment))
        if member.sync_token is not None:
            decision.reply(member.sync_token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_token = token
        if member.member_id == group.leader:
            self._take_assignment(decision, group, request, now)
        return decision

    def _take_assignment(self, decision: Decision, group: ClassicGroup, request: SyncGroupRequest, now: Now) -> None:
        """Write the leader's assignment. The group is Stable once the record is replayed; all pending SyncGroups get it."""
        assignments = {assigned.member_id: bytes(assigned.assignment) for assigned in request.assignments}
        record = group.record(assignments)
        if record.size_bytes + _BATCH_OVERHEAD_BYTES > self._groups.config.record_bytes_max:
            # The append would fail and reload the shard, for all its groups: only the members of this one get an error.
            logger.error(
                "Cannot write the assignment of group %s: its %d bytes exceed max.message.bytes=%d of __consumer_offsets",
                group.group_id,
                record.size_bytes,
                self._groups.config.record_bytes_max,
            )
            for member in group.members.values():
                self.rebalance.release_sync(decision, group, member, ErrorCode.UNKNOWN_SERVER_ERROR, now)
            self.rebalance.prepare(decision, group, now, "its assignment is too large to be written")
            return
        decision.records.append(record)
        for member in group.members.values():
            token, member.sync_token = member.sync_token, None
            if token is not None:
                decision.reply(token, sync_response(group, assignments.get(member.member_id, b"")))
                self.rebalance.restart_session(decision, group, member, now)

    def heartbeat(self, group: ClassicGroup, request: HeartbeatRequest, token: Token, now: Now) -> Decision:
        error: int = ErrorCode.NONE
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except KafkaError as refusal:
            return replied(token, HeartbeatResponse(error_code=refusal.code))
        if request.generation_id != group.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        else:
            member.extend_session(now.ms)
            if group.state is State.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        return replied(token, HeartbeatResponse(error_code=error))

    def leave_group(self, group: ClassicGroup, request: LeaveGroupRequest, token: Token, now: Now) -> Decision:
        decision = Decision()
        answers: list[MemberResponse] = []
        left: list[str] = []
        for leaving in request.members:
            answer = MemberResponse(member_id=leaving.member_id, group_instance_id=leaving.group_instance_id)
            answers.append(answer)
            member_id = leaving.member_id
            if member_id == NO_MEMBER:
                # An admin client removes a static member by its instance id.
                member_id = group.instances.get(leaving.group_instance_id or "", NO_MEMBER)
                if member_id == NO_MEMBER:
                    answer.error_code = ErrorCode.UNKNOWN_MEMBER_ID
                    continue
            elif member_id not in group.pending_join:
                try:
                    group.check_member(member_id, leaving.group_instance_id)
                except KafkaError as error:
                    answer.error_code = error.code
                    continue
            logger.info(
                "Member %s leaves group %s through an explicit LeaveGroup; client reason: %s",
                member_id,
                group.group_id,
                leaving.reason or "not provided",
            )
            if member_id in group.members:
                left.append(member_id)
            self.rebalance.remove(decision, group, member_id)
        # Removing a pending member id starts no rebalance, but a rebalance in progress may have waited for it.
        if left and group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.rebalance.prepare(decision, group, now, f"members left: {', '.join(left)}")
        else:
            self.rebalance.complete_join_if_possible(decision, group, now)
        return decision.reply(token, LeaveGroupResponse(members=answers))


def _differs(said: str | None, agreed: str | None) -> bool:
    return said is not None and agreed is not None and said != agreed
