"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (F33, F35, F36, F38, F39).

Owns when a classic group changes its state, who is answered what, and the timers of sessions, joins and syncs.
The states and their transitions are in `classic_group`.

A generation comes about in two steps. PreparingRebalance: each member sends JoinGroup and is parked, until all have come or the
longest of their rebalance timeouts is over; who has not come is removed, unless static. CompletingRebalance: each sends
SyncGroup and is parked, until the leader's brings the assignment; this is written down, and when it is, all are answered.

1. Written down is a generation with its assignment, and a group that became empty. A rebalance under way is not: after a restart
   the group is as it was before it, and its members, told so by ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID, join again.
2. A session's deadline moves with each heartbeat; its timer does not, but looks at the deadline when it fires. So a heartbeat
   costs no timer. A member that is parked lives; a new one only for `new_member_join_timeout_ms`, for it cannot be heard of.
3. A follower that joins again with what it said before is given the present generation. A leader that joins again rebalances.
4. A static member that comes back without its id takes its former place: in a stable group without a rebalance (KIP-345).
"""

from __future__ import annotations

import logging
from typing import Any, Final

from ottla.coordinator.group.classic_group import ClassicGroup, ClassicMember, Protocols, State
from ottla.coordinator.group.group import NO_GENERATION, NO_MEMBER, Caller, Groups, GroupType
from ottla.coordinator.shard import Decision, Now, TimerKey, Token, replied
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribedGroupMember
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger(__name__)

_MEMBER_ID_REQUIRED_FROM: Final = 4
_SKIP_ASSIGNMENT_FROM: Final = 9
_BATCH_OVERHEAD_BYTES: Final = 128
"""What a batch and its only record add to key and value, at most."""
_NOT_FOUND_FROM: Final = 6
"""The version of DescribeGroups in which an unknown group is an error."""


class Classic:
    name: Final[GroupType] = "classic"
    record_types: Final = frozenset({2})

    def __init__(self, groups: Groups) -> None:
        self._groups = groups

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
        """A group that has offsets and never had members."""
        self._groups.by_id[group_id] = ClassicGroup(group_id)

    def on_loaded(self, now: Now) -> Decision:
        decision = Decision()
        for group in list(self._groups.by_id.values()):
            if not isinstance(group, ClassicGroup):
                continue
            self.start_sessions(decision, group, now)
            if len(group.members) > self._groups.config.size_max:
                # The limit was lowered. Whoever joins last finds the group full.
                self.prepare_rebalance(decision, group, now, "the loaded group is larger than group.max.size")
        return decision

    def start_sessions(self, decision: Decision, group: ClassicGroup, now: Now) -> None:
        """From now on each member has its session timeout to be heard of."""
        for member in group.members.values():
            self._restart_session(decision, group, member, now)

    def topics_changed(self, now: Now) -> Decision:
        """The members watch their topics themselves."""
        return Decision()

    def on_timer(self, key: TimerKey, now: Now) -> Decision:
        decision = Decision()
        group = self._groups.by_id.get(key[2])
        if isinstance(group, ClassicGroup):
            match key[1]:
                case "session":
                    self._session_timer(decision, group, key[3], now)
                case "join":
                    self._join_timer(decision, group, now)
                case "sync":
                    self._sync_timer(decision, group, now)
        return decision

    # JoinGroup

    def join_group(self, request: JoinGroupRequest, caller: Caller, token: Token, now: Now) -> Decision:
        """The group is classic, or of another kind and empty, or not there yet."""
        config, by_id = self._groups.config, self._groups.by_id
        member_id = request.member_id
        if not request.group_id:
            return _refused(token, member_id, ErrorCode.INVALID_GROUP_ID)
        if not config.session_timeout_min_ms <= request.session_timeout_ms <= config.session_timeout_max_ms:
            return _refused(token, member_id, ErrorCode.INVALID_SESSION_TIMEOUT)
        decision = Decision()
        found = by_id.get(request.group_id)
        if isinstance(found, ClassicGroup):
            group = found
        elif member_id != NO_MEMBER:
            return _refused(token, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        else:
            if found is not None:
                # An empty group of another kind makes room.
                decision.records += found.tombstones()
            group = ClassicGroup(request.group_id)
        protocols = tuple([(protocol.name, bytes(protocol.metadata)) for protocol in request.protocols])
        if not self._has_room(group, member_id):
            self._remove(decision, group, member_id)
            return decision.add(_refused(token, NO_MEMBER, ErrorCode.GROUP_MAX_SIZE_REACHED))
        if not group.supports(request.protocol_type, protocols):
            return _refused(token, member_id, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
        by_id[request.group_id] = group
        join = _Join(request, protocols, caller, token, now)
        if member_id == NO_MEMBER:
            self._join_new(decision, group, join)
        else:
            self._join_known(decision, group, join)
        return decision

    def _has_room(self, group: ClassicGroup, member_id: str) -> bool:
        """Whether group.max.size lets the member in (G10)."""
        size_max = self._groups.config.size_max
        if len(group.members) < size_max and group.awaiting_join < size_max:
            return True
        match group.state:
            case State.PREPARING_REBALANCE:
                # Those who wait count, and not the members: of a group that is too large the last to come are turned away.
                member = group.members.get(member_id)
                return (member is not None and member.join_token is not None) or group.awaiting_join < size_max
            case State.COMPLETING_REBALANCE | State.STABLE:
                return member_id in group.members or len(group.members) < size_max
        return True

    def _join_new(self, decision: Decision, group: ClassicGroup, join: _Join) -> None:
        instance_id = join.request.group_instance_id
        new_id = f"{instance_id if instance_id is not None else join.caller.client_id}-{join.caller.new_id}"
        if instance_id is not None:
            former_id = group.instances.get(instance_id)
            if former_id is not None:
                self._rejoin_static(decision, group, join, group.members[former_id], new_id)
                return
        elif join.caller.version >= _MEMBER_ID_REQUIRED_FROM:
            due_ms = join.now.ms + join.request.session_timeout_ms
            group.pending_join[new_id] = due_ms
            decision.set_timer(_session_key(group, new_id), due_ms)
            decision.reply(join.token, JoinGroupResponse(error_code=ErrorCode.MEMBER_ID_REQUIRED, member_id=new_id))
            return
        self._add_member(decision, group, join, new_id)

    def _join_known(self, decision: Decision, group: ClassicGroup, join: _Join) -> None:
        request, member_id = join.request, join.request.member_id
        if member_id in group.pending_join and request.group_instance_id is None:
            self._add_member(decision, group, join, member_id)
            return
        try:
            member = group.check_member(member_id, request.group_instance_id)
        except KafkaError as error:
            decision.reply(join.token, JoinGroupResponse(error_code=error.code, member_id=member_id))
            return
        same = member.protocols == join.protocols
        match group.state:
            case State.PREPARING_REBALANCE:
                self._update_member(decision, group, join, member, "is joining")
            case State.COMPLETING_REBALANCE if same:
                # The reply it got is perhaps lost: here it is again.
                decision.reply(join.token, _joined(group, member))
            case State.COMPLETING_REBALANCE:
                self._update_member(decision, group, join, member, "changed its metadata")
            case State.STABLE if member_id == group.leader:
                # Only the leader sees that the assignment needs to change though no subscription has (new partitions).
                self._update_member(decision, group, join, member, "leads and joins again")
            case State.STABLE if not same:
                self._update_member(decision, group, join, member, "changed its metadata")
            case State.STABLE:
                decision.reply(join.token, _joined(group, member, with_members=False))
            case _:
                decision.reply(join.token, JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, member_id=member_id))

    def _add_member(self, decision: Decision, group: ClassicGroup, join: _Join, member_id: str) -> None:
        request, caller = join.request, join.caller
        member = ClassicMember(
            member_id,
            request.group_instance_id,
            caller.client_id,
            caller.client_host,
            join.rebalance_timeout_ms,
            request.session_timeout_ms,
            join.protocols,
        )
        member.is_new = True
        if group.state is State.PREPARING_REBALANCE and group.previous_state is State.EMPTY:
            group.new_member_added = True
        group.add(member, request.protocol_type, join.token)
        self._set_deadline(decision, group, member, join.now.ms + self._groups.config.new_member_join_timeout_ms)
        self._rebalance(decision, group, join, "new member", member_id)

    def _update_member(self, decision: Decision, group: ClassicGroup, join: _Join, member: ClassicMember, reason: str) -> None:
        group.update(member, join.protocols, join.rebalance_timeout_ms, join.request.session_timeout_ms)
        self._park_join(decision, group, member, join.token)
        self._rebalance(decision, group, join, member.member_id, reason)

    def _park_join(self, decision: Decision, group: ClassicGroup, member: ClassicMember, token: Token) -> None:
        before = group.park_join(member, token)
        if before is not None:
            # The same member on another connection: the former one is most likely gone.
            decision.reply(before, JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))

    def _rejoin_static(self, decision: Decision, group: ClassicGroup, join: _Join, member: ClassicMember, new_id: str) -> None:
        """A static member without its id (G04)."""
        former_id, former_leader = member.member_id, group.leader
        # Whoever still waits under the former id is a double, and out.
        self._release_member(decision, group, member, ErrorCode.FENCED_INSTANCE_ID, former_id)
        decision.cancel_timer(_session_key(group, former_id))
        group.replace_static(member, new_id)
        member.timer_ms = 0
        group.update(member, join.protocols, join.rebalance_timeout_ms, join.request.session_timeout_ms)
        self._restart_session(decision, group, member, join.now)
        if group.state is State.STABLE and group.protocol_name == group.select_protocol():
            decision.records.append(group.record())
            if join.caller.version >= _SKIP_ASSIGNMENT_FROM:
                response = _joined(group, member)
                response.skip_assignment = member.member_id == group.leader
            else:
                # It must not take itself for the leader, for its assignment would not be taken up.
                response = _joined(group, member, with_members=False)
                response.leader = former_leader or ""
            decision.reply(join.token, response)
            return
        self._park_join(decision, group, member, join.token)
        self._rebalance(decision, group, join, f"static member {member.instance_id}", "is back")

    # From one generation to the next

    def _rebalance(self, decision: Decision, group: ClassicGroup, join: _Join, who: str, what: str) -> None:
        """Something changed: begin a rebalance, or go on with the one that is under way."""
        if group.can_rebalance:
            self.prepare_rebalance(decision, group, join.now, f"{who} {what}; {join.reason}")
        else:
            self._complete_join_if_possible(decision, group, join.now)

    def prepare_rebalance(self, decision: Decision, group: ClassicGroup, now: Now, reason: str) -> None:
        logger.info("group %s rebalances after generation %d: %s", group.group_id, group.generation, reason)
        if group.state is State.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                self._release_sync(decision, group, member, ErrorCode.REBALANCE_IN_PROGRESS, now)
        group.pending_sync.clear()
        decision.cancel_timer(_sync_key(group))
        is_initial = group.state is State.EMPTY
        group.transition_to(State.PREPARING_REBALANCE, now.wall_ms)
        if is_initial:
            # A new group waits a little, so that its first members need not rebalance for each other.
            delay_ms = self._groups.config.initial_rebalance_delay_ms
            group.new_member_added = False
            group.join_delay_ms = delay_ms
            group.join_remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
            decision.set_timer(_join_key(group), now.ms + delay_ms)
        elif group.all_joined:
            self._complete_join(decision, group, now)
        else:
            decision.set_timer(_join_key(group), now.ms + group.rebalance_timeout_ms)

    def _complete_join_if_possible(self, decision: Decision, group: ClassicGroup, now: Now) -> None:
        if group.state is State.PREPARING_REBALANCE and group.previous_state is not State.EMPTY and group.all_joined:
            self._complete_join(decision, group, now)

    def _complete_join(self, decision: Decision, group: ClassicGroup, now: Now) -> None:
        """End the joining with those who came."""
        decision.cancel_timer(_join_key(group))
        for member in list(group.members.values()):
            if member.join_token is None and member.instance_id is None:
                logger.info("group %s: %s did not join in time", group.group_id, member.member_id)
                self._remove(decision, group, member.member_id)
        if group.members and not group.elect_joined_leader():
            # Only absent static members: their session timeouts will decide.
            decision.set_timer(_join_key(group), now.ms + group.rebalance_timeout_ms)
            return
        group.next_generation(now.wall_ms)
        if not group.members:
            logger.info("group %s is empty in generation %d", group.group_id, group.generation)
            decision.records.append(group.record())
            return
        logger.info(
            "group %s generation %d: %d members, protocol %s",
            group.group_id,
            group.generation,
            len(group.members),
            group.protocol_name,
        )
        for member in group.members.values():
            token = group.take_join(member)
            if token is not None:
                decision.reply(token, _joined(group, member))
            self._restart_session(decision, group, member, now)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        decision.set_timer(_sync_key(group), now.ms + group.rebalance_timeout_ms)

    def _join_timer(self, decision: Decision, group: ClassicGroup, now: Now) -> None:
        if group.state is not State.PREPARING_REBALANCE:
            return
        if group.previous_state is State.EMPTY and group.new_member_added and group.join_remaining_ms > 0:
            # Somebody came meanwhile, so others may: wait on, as long as the members' own timeouts allow.
            group.new_member_added = False
            passed_ms = group.join_delay_ms
            group.join_delay_ms = min(self._groups.config.initial_rebalance_delay_ms, group.join_remaining_ms)
            group.join_remaining_ms = max(group.join_remaining_ms - passed_ms, 0)
            decision.set_timer(_join_key(group), now.ms + group.join_delay_ms)
        else:
            self._complete_join(decision, group, now)

    # SyncGroup

    def sync_group(self, request: SyncGroupRequest, token: Token, now: Now) -> Decision:
        """The group is classic and not empty."""
        group = self._groups.by_id[request.group_id]
        assert isinstance(group, ClassicGroup)
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
            decision.cancel_timer(_sync_key(group))
        if group.state is State.STABLE:
            return decision.reply(token, _synced(group, member.assignment))
        if member.sync_token is not None:
            decision.reply(member.sync_token, SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS))
        member.sync_token = token
        if member.member_id == group.leader:
            self._take_assignment(decision, group, request, now)
        return decision

    def _take_assignment(self, decision: Decision, group: ClassicGroup, request: SyncGroupRequest, now: Now) -> None:
        """Write the leader's assignment down; the group is stable when that is replayed, and all who wait are answered."""
        assignments = {assigned.member_id: bytes(assigned.assignment) for assigned in request.assignments}
        record = group.record(assignments)
        if record.size_bytes + _BATCH_OVERHEAD_BYTES > self._groups.config.record_bytes_max:
            # It would not be taken, whoever tries: the members hear it, and nobody else suffers for it.
            logger.error(
                "group %s: its metadata of %d bytes is too large for the topic of offsets", group.group_id, record.size_bytes
            )
            for member in group.members.values():
                self._release_sync(decision, group, member, ErrorCode.UNKNOWN_SERVER_ERROR, now)
            self.prepare_rebalance(decision, group, now, "its assignment is too large to be written down")
            return
        decision.records.append(record)
        for member in group.members.values():
            token, member.sync_token = member.sync_token, None
            if token is not None:
                decision.reply(token, _synced(group, assignments.get(member.member_id, b"")))
                self._restart_session(decision, group, member, now)

    def _sync_timer(self, decision: Decision, group: ClassicGroup, now: Now) -> None:
        """Members that joined a generation and then never asked for their part of it are gone."""
        if group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_sync:
            return
        late = sorted(group.pending_sync)
        for member_id in late:
            self._remove(decision, group, member_id)
        self.prepare_rebalance(decision, group, now, f"no SyncGroup from {', '.join(late)}")

    # Heartbeat

    def heartbeat(self, request: HeartbeatRequest, token: Token, now: Now) -> Decision:
        """The group is classic."""
        group = self._groups.by_id[request.group_id]
        assert isinstance(group, ClassicGroup)
        error: int = ErrorCode.NONE
        try:
            member = group.check_member(request.member_id, request.group_instance_id)
        except KafkaError as refusal:
            return replied(token, HeartbeatResponse(error_code=refusal.code))
        if request.generation_id != group.generation:
            error = ErrorCode.ILLEGAL_GENERATION
        else:
            member.heard(now.ms)
            if group.state is State.PREPARING_REBALANCE:
                error = ErrorCode.REBALANCE_IN_PROGRESS
        return replied(token, HeartbeatResponse(error_code=error))

    def beat(self, group_id: str, generation: int, member_id: str, instance_id: str | None, now_ms: int) -> bool:
        """A heartbeat as nearly all are. False: it is not one of these, nothing was done, and `heartbeat` knows what it is."""
        group = self._groups.by_id.get(group_id)
        if type(group) is not ClassicGroup or generation != group.generation or group.state is State.PREPARING_REBALANCE:
            return False
        member = group.members.get(member_id)
        if member is None or (instance_id is not None and group.instances.get(instance_id) != member_id):
            return False
        member.heard(now_ms)
        return True

    # LeaveGroup

    def leave_group(self, request: LeaveGroupRequest, token: Token, now: Now) -> Decision:
        """The group is classic."""
        group = self._groups.by_id[request.group_id]
        assert isinstance(group, ClassicGroup)
        decision = Decision()
        answers: list[MemberResponse] = []
        left: list[str] = []
        for leaving in request.members:
            answer = MemberResponse(member_id=leaving.member_id, group_instance_id=leaving.group_instance_id)
            answers.append(answer)
            member_id = leaving.member_id
            if member_id == NO_MEMBER:
                # An administrator removes a static member by its instance id.
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
            logger.info("group %s: %s leaves: %s", group.group_id, member_id, leaving.reason or "no reason given")
            if member_id in group.members:
                left.append(member_id)
            self._remove(decision, group, member_id)
        # An id that was only given out takes nothing with it when it goes; but a rebalance may have waited for it.
        if left and group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare_rebalance(decision, group, now, f"{', '.join(left)} left")
        else:
            self._complete_join_if_possible(decision, group, now)
        return decision.reply(token, LeaveGroupResponse(members=answers))

    # Sessions

    def _session_timer(self, decision: Decision, group: ClassicGroup, member_id: str, now: Now) -> None:
        member = group.members.get(member_id)
        if member is None:
            due_ms = group.pending_join.get(member_id)
            if due_ms is None:
                return
            if now.ms < due_ms:
                decision.set_timer(_session_key(group, member_id), due_ms)
                return
            logger.info("group %s: %s was given out and never used", group.group_id, member_id)
            del group.pending_join[member_id]
            if group.state is State.PREPARING_REBALANCE and group.all_joined:
                self._complete_join(decision, group, now)
            return
        member.timer_ms = 0
        if now.ms < member.deadline_ms:
            self._set_deadline(decision, group, member, member.deadline_ms)
            return
        if not member.is_new and (member.join_token is not None or member.sync_token is not None):
            # Parked here, so it lives. Its session starts anew when it is answered.
            return
        logger.info("group %s: nothing was heard of %s", group.group_id, member_id)
        self._remove(decision, group, member_id)
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare_rebalance(decision, group, now, f"nothing was heard of {member_id}")
        elif group.state is State.PREPARING_REBALANCE and group.all_joined:
            self._complete_join(decision, group, now)

    def _restart_session(self, decision: Decision, group: ClassicGroup, member: ClassicMember, now: Now) -> None:
        self._set_deadline(decision, group, member, now.ms + member.session_timeout_ms)

    def _set_deadline(self, decision: Decision, group: ClassicGroup, member: ClassicMember, deadline_ms: int) -> None:
        member.deadline_ms = deadline_ms
        if not member.timer_ms or deadline_ms < member.timer_ms:
            member.timer_ms = deadline_ms
            decision.set_timer(_session_key(group, member.member_id), deadline_ms)

    # Who goes

    def _remove(self, decision: Decision, group: ClassicGroup, member_id: str) -> None:
        """A member, or an id that was given out, goes. Whoever waits under it is told to begin anew."""
        decision.cancel_timer(_session_key(group, member_id))
        member = group.members.get(member_id)
        if member is not None:
            self._release_member(decision, group, member, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER)
        group.remove(member_id)

    def _release_member(
        self, decision: Decision, group: ClassicGroup, member: ClassicMember, error: ErrorCode, member_id: str
    ) -> None:
        token = group.take_join(member)
        if token is not None:
            decision.reply(token, JoinGroupResponse(error_code=error, member_id=member_id))
        token, member.sync_token = member.sync_token, None
        if token is not None:
            decision.reply(token, SyncGroupResponse(error_code=error))

    def _release_sync(self, decision: Decision, group: ClassicGroup, member: ClassicMember, error: ErrorCode, now: Now) -> None:
        token, member.sync_token = member.sync_token, None
        if token is not None:
            decision.reply(token, SyncGroupResponse(error_code=error))
            self._restart_session(decision, group, member, now)

    # DescribeGroups

    def describe(self, group_id: str, version: int) -> DescribedGroup:
        group = self._groups.by_id.get(group_id)
        if not isinstance(group, ClassicGroup):
            described = DescribedGroup(group_id=group_id, group_state=State.DEAD.value)
            if version >= _NOT_FOUND_FROM:
                described.error_code = ErrorCode.GROUP_ID_NOT_FOUND
                described.error_message = (
                    f"there is no group {group_id}"
                    if group is None
                    else f"{group_id} is a group of another protocol than the classic one"
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


class _Join:
    """One JoinGroup, with what goes along with it."""

    __slots__ = ("caller", "now", "protocols", "request", "token")

    def __init__(self, request: JoinGroupRequest, protocols: Protocols, caller: Caller, token: Token, now: Now) -> None:
        self.request = request
        self.protocols = protocols
        self.caller = caller
        self.token = token
        self.now = now

    @property
    def rebalance_timeout_ms(self) -> int:
        # Version 0 has one timeout for both.
        return self.request.rebalance_timeout_ms if self.caller.version >= 1 else self.request.session_timeout_ms

    @property
    def reason(self) -> str:
        return self.request.reason or "no reason given"


def _joined(group: ClassicGroup, member: ClassicMember, *, with_members: bool = True) -> JoinGroupResponse:
    """The present generation, as its members are told; the leader hears of all of them."""
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


def _synced(group: ClassicGroup, assignment: bytes) -> SyncGroupResponse:
    return SyncGroupResponse(protocol_type=group.protocol_type, protocol_name=group.protocol_name, assignment=assignment)


def _refused(token: Token, member_id: str, error: ErrorCode) -> Decision:
    return replied(token, JoinGroupResponse(error_code=error, generation_id=NO_GENERATION, member_id=member_id))


def _differs(said: str | None, agreed: str | None) -> bool:
    return said is not None and agreed is not None and said != agreed


def _session_key(group: ClassicGroup, member_id: str) -> TimerKey:
    return ("classic", "session", group.group_id, member_id)


def _join_key(group: ClassicGroup) -> TimerKey:
    return ("classic", "join", group.group_id)


def _sync_key(group: ClassicGroup) -> TimerKey:
    return ("classic", "sync", group.group_id)
