"""The classic group protocol: JoinGroup, SyncGroup, Heartbeat, LeaveGroup (F33, F35, F36, F38, F39).

Owns when a classic group changes its state, what each member is answered, and the session, join and sync timers. The states and
their transitions are in `classic_group`.

A rebalance has two steps. PreparingRebalance: each member sends JoinGroup, which stays pending until all members have joined or
the longest rebalance timeout has passed; dynamic members that have not joined are removed. CompletingRebalance: each member sends
SyncGroup, which stays pending until the leader's brings the assignment and the record of the generation is committed.

1. The log has each generation with its assignment, and the change to Empty. It has no rebalance in progress: after a failover the
   group is as before it, and its members join again when they get ILLEGAL_GENERATION or UNKNOWN_MEMBER_ID.
2. A heartbeat moves the session's deadline and sets no timer. The timer that is set compares the deadline when it fires. A member
   with a pending request is alive; a new one only for `new_member_join_timeout_ms`, because it cannot send heartbeats yet.
3. A follower that joins again with the same subscription gets the current generation. A leader that joins again rebalances.
4. A static member that joins without its member id takes its old place: in a stable group without a rebalance (KIP-345).
"""

from __future__ import annotations

import logging
from typing import Any, Final, NamedTuple

from ottla.coordinator.group.classic_group import ClassicGroup, ClassicMember, Protocols, State, join_response, sync_response
from ottla.coordinator.group.group import NO_GENERATION, NO_MEMBER, Caller, Groups, GroupType
from ottla.coordinator.shard import Decision, Now, TimerKey, Token, replied
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

logger = logging.getLogger(__name__)

_MEMBER_ID_REQUIRED_FROM: Final = 4
_SKIP_ASSIGNMENT_FROM: Final = 9
_BATCH_OVERHEAD_BYTES: Final = 128
"""Upper bound of what a batch with one record adds to key and value."""


class ClassicGroupProtocol:
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
                self.prepare_rebalance(decision, group, now, "the loaded group has more members than group.max.size")
        return decision

    def start_sessions(self, decision: Decision, group: ClassicGroup, now: Now) -> None:
        """Start the session timeouts of all members."""
        for member in group.members.values():
            self._restart_session(decision, group, member, now)

    def topics_changed(self, now: Now) -> Decision:
        """Nothing: members of classic groups watch their topics themselves."""
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
        """The group is classic, or of another kind and empty, or does not exist."""
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
                # Replace an empty group of another kind.
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
                # While the group rebalances, compare group.max.size with the members that have rejoined.
                member = group.members.get(member_id)
                return (member is not None and member.join_token is not None) or group.awaiting_join < size_max
            case State.COMPLETING_REBALANCE | State.STABLE:
                return member_id in group.members or len(group.members) < size_max
        return True

    def _join_new(self, decision: Decision, group: ClassicGroup, join: _Join) -> None:
        instance_id = join.request.group_instance_id
        new_id = f"{instance_id if instance_id is not None else join.caller.client_id}-{join.caller.new_id}"
        if instance_id is not None:
            old_id = group.instances.get(instance_id)
            if old_id is not None:
                self._rejoin_static(decision, group, join, group.members[old_id], new_id)
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
                self._update_member(decision, group, join, member, "joins again")
            case State.COMPLETING_REBALANCE if same:
                # The first reply may be lost: send it again.
                decision.reply(join.token, join_response(group, member))
            case State.COMPLETING_REBALANCE:
                self._update_member(decision, group, join, member, "updates its metadata")
            case State.STABLE if member_id == group.leader:
                # Only the leader notices changes beyond the subscriptions, such as new partitions.
                self._update_member(decision, group, join, member, "is the leader and joins again")
            case State.STABLE if not same:
                self._update_member(decision, group, join, member, "updates its metadata")
            case State.STABLE:
                decision.reply(join.token, join_response(group, member, with_members=False))
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
            # The member joins on another connection: its previous one is most likely closed.
            decision.reply(before, JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))

    def _rejoin_static(self, decision: Decision, group: ClassicGroup, join: _Join, member: ClassicMember, new_id: str) -> None:
        """A static member joins without its member id (G04)."""
        old_id, old_leader = member.member_id, group.leader
        # A request that is pending under the old id comes from a duplicate instance: fence it.
        self._release_member(decision, group, member, ErrorCode.FENCED_INSTANCE_ID, old_id)
        decision.cancel_timer(_session_key(group, old_id))
        group.replace_static(member, new_id)
        member.timer_ms = 0
        group.update(member, join.protocols, join.rebalance_timeout_ms, join.request.session_timeout_ms)
        self._restart_session(decision, group, member, join.now)
        if group.state is State.STABLE and group.protocol_name == group.select_protocol():
            decision.records.append(group.record())
            if join.caller.version >= _SKIP_ASSIGNMENT_FROM:
                response = join_response(group, member)
                response.skip_assignment = member.member_id == group.leader
            else:
                # It must not act as the leader: its assignment would be ignored.
                response = join_response(group, member, with_members=False)
                response.leader = old_leader or ""
            decision.reply(join.token, response)
            return
        self._park_join(decision, group, member, join.token)
        self._rebalance(decision, group, join, f"static member {member.instance_id}", "rejoins")

    # From one generation to the next

    def _rebalance(self, decision: Decision, group: ClassicGroup, join: _Join, who: str, what: str) -> None:
        """Start a rebalance, or go on with the one in progress."""
        if group.can_rebalance:
            self.prepare_rebalance(decision, group, join.now, f"{who} {what}; client reason: {join.reason}")
        else:
            self._complete_join_if_possible(decision, group, join.now)

    def prepare_rebalance(self, decision: Decision, group: ClassicGroup, now: Now, reason: str) -> None:
        logger.info(
            "Preparing to rebalance group %s in state %s with old generation %d (reason: %s)",
            group.group_id,
            group.state_name,
            group.generation,
            reason,
        )
        if group.state is State.COMPLETING_REBALANCE:
            for member in group.members.values():
                member.assignment = b""
                self._release_sync(decision, group, member, ErrorCode.REBALANCE_IN_PROGRESS, now)
        group.pending_sync.clear()
        decision.cancel_timer(_sync_key(group))
        is_initial = group.state is State.EMPTY
        group.transition_to(State.PREPARING_REBALANCE, now.wall_ms)
        if is_initial:
            # Wait group.initial.rebalance.delay.ms for more members, so that the first ones do not each cause a rebalance.
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
        """End PreparingRebalance with the members that have joined."""
        decision.cancel_timer(_join_key(group))
        for member in list(group.members.values()):
            if member.join_token is None and member.instance_id is None:
                logger.info(
                    "Removing member %s from group %s: it did not rejoin within the rebalance timeout of %d ms",
                    member.member_id,
                    group.group_id,
                    group.rebalance_timeout_ms,
                )
                self._remove(decision, group, member.member_id)
        if group.members and not group.elect_joined_leader():
            # All members are static and none has rejoined: wait for their session timeouts.
            decision.set_timer(_join_key(group), now.ms + group.rebalance_timeout_ms)
            return
        group.next_generation(now.wall_ms)
        if not group.members:
            logger.info("Group %s with generation %d is now empty", group.group_id, group.generation)
            decision.records.append(group.record())
            return
        logger.info(
            "Stabilized group %s generation %d with %d members (protocol %s)",
            group.group_id,
            group.generation,
            len(group.members),
            group.protocol_name,
        )
        for member in group.members.values():
            token = group.take_join(member)
            if token is not None:
                decision.reply(token, join_response(group, member))
            self._restart_session(decision, group, member, now)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        decision.set_timer(_sync_key(group), now.ms + group.rebalance_timeout_ms)

    def _join_timer(self, decision: Decision, group: ClassicGroup, now: Now) -> None:
        if group.state is not State.PREPARING_REBALANCE:
            return
        if group.previous_state is State.EMPTY and group.new_member_added and group.join_remaining_ms > 0:
            # A member joined during the delay: wait for more, as long as the rebalance timeout allows.
            group.new_member_added = False
            passed_ms = group.join_delay_ms
            group.join_delay_ms = min(self._groups.config.initial_rebalance_delay_ms, group.join_remaining_ms)
            group.join_remaining_ms = max(group.join_remaining_ms - passed_ms, 0)
            decision.set_timer(_join_key(group), now.ms + group.join_delay_ms)
        else:
            self._complete_join(decision, group, now)

    # SyncGroup

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
            decision.cancel_timer(_sync_key(group))
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
                self._release_sync(decision, group, member, ErrorCode.UNKNOWN_SERVER_ERROR, now)
            self.prepare_rebalance(decision, group, now, "its assignment is too large to be written")
            return
        decision.records.append(record)
        for member in group.members.values():
            token, member.sync_token = member.sync_token, None
            if token is not None:
                decision.reply(token, sync_response(group, assignments.get(member.member_id, b"")))
                self._restart_session(decision, group, member, now)

    def _sync_timer(self, decision: Decision, group: ClassicGroup, now: Now) -> None:
        """Remove members that joined a generation and sent no SyncGroup in time."""
        if group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_sync:
            return
        late = sorted(group.pending_sync)
        for member_id in late:
            self._remove(decision, group, member_id)
        self.prepare_rebalance(decision, group, now, f"removing members that sent no SyncGroup: {', '.join(late)}")

    # Heartbeat

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

    # LeaveGroup

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
            self._remove(decision, group, member_id)
        # Removing a pending member id starts no rebalance, but a rebalance in progress may have waited for it.
        if left and group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare_rebalance(decision, group, now, f"members left: {', '.join(left)}")
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
            logger.info("Pending member %s of group %s has not joined within its session timeout", member_id, group.group_id)
            del group.pending_join[member_id]
            if group.state is State.PREPARING_REBALANCE and group.all_joined:
                self._complete_join(decision, group, now)
            return
        member.timer_ms = 0
        if now.ms < member.deadline_ms:
            self._set_deadline(decision, group, member, member.deadline_ms)
            return
        if not member.is_new and (member.join_token is not None or member.sync_token is not None):
            # Its request is pending here, so it is alive. Its session starts again with the reply.
            return
        logger.info(
            "Removing member %s from group %s: no heartbeat within its session timeout of %d ms",
            member_id,
            group.group_id,
            member.session_timeout_ms,
        )
        self._remove(decision, group, member_id)
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare_rebalance(decision, group, now, f"removing member {member_id} on heartbeat expiration")
        elif group.state is State.PREPARING_REBALANCE and group.all_joined:
            self._complete_join(decision, group, now)

    def _restart_session(self, decision: Decision, group: ClassicGroup, member: ClassicMember, now: Now) -> None:
        self._set_deadline(decision, group, member, now.ms + member.session_timeout_ms)

    def _set_deadline(self, decision: Decision, group: ClassicGroup, member: ClassicMember, deadline_ms: int) -> None:
        member.deadline_ms = deadline_ms
        if not member.timer_ms or deadline_ms < member.timer_ms:
            member.timer_ms = deadline_ms
            decision.set_timer(_session_key(group, member.member_id), deadline_ms)

    # Removing members

    def _remove(self, decision: Decision, group: ClassicGroup, member_id: str) -> None:
        """Remove a member or a pending member id. Its pending requests fail with UNKNOWN_MEMBER_ID."""
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


class _Join(NamedTuple):
    """One JoinGroup request and its context."""

    request: JoinGroupRequest
    protocols: Protocols
    caller: Caller
    token: Token
    now: Now

    @property
    def rebalance_timeout_ms(self) -> int:
        # Version 0 has one timeout for sessions and rebalances.
        return self.request.rebalance_timeout_ms if self.caller.version >= 1 else self.request.session_timeout_ms

    @property
    def reason(self) -> str:
        return self.request.reason or "not provided"


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
