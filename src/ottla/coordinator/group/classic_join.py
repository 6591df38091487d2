"""JoinGroup of classic groups: who gets in, and whether that starts a rebalance (F33, F36).

1. A follower that joins again with the same subscription gets the current generation. A leader that joins again rebalances.
2. A static member that joins without its member id takes its old place: in a stable group without a rebalance (KIP-345).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from ottla.coordinator.group.classic_group import ClassicGroup, ClassicMember, Protocols, State, join_response
from ottla.coordinator.group.classic_rebalance import ClassicRebalance, session_key
from ottla.coordinator.group.group import NO_GENERATION, NO_MEMBER, Caller, Groups
from ottla.coordinator.shard import Decision, Now, Token, replied
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

_MEMBER_ID_REQUIRED_FROM: Final = 4
_SKIP_ASSIGNMENT_FROM: Final = 9


class ClassicJoin:
    def __init__(self, groups: Groups, rebalance: ClassicRebalance) -> None:
        self._groups = groups
        self._rebalance = rebalance

    def decide(self, request: JoinGroupRequest, caller: Caller, token: Token, now: Now) -> Decision:
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
            self._rebalance.remove(decision, group, member_id)
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
            decision.set_timer(session_key(group, new_id), due_ms)
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
        self._rebalance.set_deadline(decision, group, member, join.now.ms + self._groups.config.new_member_join_timeout_ms)
        self._rebalance_group(decision, group, join, "new member", member_id)

    def _update_member(self, decision: Decision, group: ClassicGroup, join: _Join, member: ClassicMember, reason: str) -> None:
        group.update(member, join.protocols, join.rebalance_timeout_ms, join.request.session_timeout_ms)
        self._park_join(decision, group, member, join.token)
        self._rebalance_group(decision, group, join, member.member_id, reason)

    def _park_join(self, decision: Decision, group: ClassicGroup, member: ClassicMember, token: Token) -> None:
        before = group.park_join(member, token)
        if before is not None:
            # The member joins on another connection: its previous one is most likely closed.
            decision.reply(before, JoinGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS, member_id=member.member_id))

    def _rejoin_static(self, decision: Decision, group: ClassicGroup, join: _Join, member: ClassicMember, new_id: str) -> None:
        """A static member joins without its member id (G04)."""
        old_id, old_leader = member.member_id, group.leader
        # A request that is pending under the old id comes from a duplicate instance: fence it.
        self._rebalance.release_member(decision, group, member, ErrorCode.FENCED_INSTANCE_ID, old_id)
        decision.cancel_timer(session_key(group, old_id))
        group.replace_static(member, new_id)
        member.timer_ms = 0
        group.update(member, join.protocols, join.rebalance_timeout_ms, join.request.session_timeout_ms)
        self._rebalance.restart_session(decision, group, member, join.now)
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
        self._rebalance_group(decision, group, join, f"static member {member.instance_id}", "rejoins")

    def _rebalance_group(self, decision: Decision, group: ClassicGroup, join: _Join, who: str, what: str) -> None:
        """Start a rebalance, or go on with the one in progress."""
        if group.can_rebalance:
            self._rebalance.prepare(decision, group, join.now, f"{who} {what}; client reason: {join.reason}")
        else:
            self._rebalance.complete_join_if_possible(decision, group, join.now)


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
