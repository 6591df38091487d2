"""How a classic group gets from one generation to the next, and how it loses members (F33, F35, F38).

Owns the two steps of a rebalance, the timers that end them, and the sessions of members.

PreparingRebalance: each member sends JoinGroup, which stays pending until all members have joined or the longest rebalance
timeout has passed; dynamic members that have not joined are removed. CompletingRebalance: each member sends SyncGroup, which
stays pending until the leader's brings the assignment and the record of the generation is committed.

A heartbeat moves the session's deadline and sets no timer. The timer that is set compares the deadline when it fires. A member
with a pending request is alive; a new one only for `new_member_join_timeout_ms`, because it cannot send heartbeats yet.
"""

from __future__ import annotations

import logging

from ottla.coordinator.group.classic_group import ClassicGroup, ClassicMember, State, join_response
from ottla.coordinator.group.group import NO_MEMBER, Groups
from ottla.coordinator.shard import Decision, Now, TimerKey
from ottla.errors import ErrorCode
from ottla.protocol.messages.join_group import JoinGroupResponse
from ottla.protocol.messages.sync_group import SyncGroupResponse

logger = logging.getLogger(__name__)


class ClassicRebalance:
    def __init__(self, groups: Groups) -> None:
        self._groups = groups

    # From one generation to the next

    def prepare(self, decision: Decision, group: ClassicGroup, now: Now, reason: str) -> None:
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
                self.release_sync(decision, group, member, ErrorCode.REBALANCE_IN_PROGRESS, now)
        group.pending_sync.clear()
        decision.cancel_timer(sync_key(group))
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
            self.complete_join(decision, group, now)
        else:
            decision.set_timer(_join_key(group), now.ms + group.rebalance_timeout_ms)

    def complete_join_if_possible(self, decision: Decision, group: ClassicGroup, now: Now) -> None:
        if group.state is State.PREPARING_REBALANCE and group.previous_state is not State.EMPTY and group.all_joined:
            self.complete_join(decision, group, now)

    def complete_join(self, decision: Decision, group: ClassicGroup, now: Now) -> None:
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
                self.remove(decision, group, member.member_id)
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
            self.restart_session(decision, group, member, now)
            member.is_new = False
            group.pending_sync.add(member.member_id)
        decision.set_timer(sync_key(group), now.ms + group.rebalance_timeout_ms)

    def join_timer(self, decision: Decision, group: ClassicGroup, now: Now) -> None:
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
            self.complete_join(decision, group, now)

    def sync_timer(self, decision: Decision, group: ClassicGroup, now: Now) -> None:
        """Remove members that joined a generation and sent no SyncGroup in time."""
        if group.state not in (State.COMPLETING_REBALANCE, State.STABLE) or not group.pending_sync:
            return
        late = sorted(group.pending_sync)
        for member_id in late:
            self.remove(decision, group, member_id)
        self.prepare(decision, group, now, f"removing members that sent no SyncGroup: {', '.join(late)}")

    # Sessions

    def session_timer(self, decision: Decision, group: ClassicGroup, member_id: str, now: Now) -> None:
        member = group.members.get(member_id)
        if member is None:
            due_ms = group.pending_join.get(member_id)
            if due_ms is None:
                return
            if now.ms < due_ms:
                decision.set_timer(session_key(group, member_id), due_ms)
                return
            logger.info("Pending member %s of group %s has not joined within its session timeout", member_id, group.group_id)
            del group.pending_join[member_id]
            if group.state is State.PREPARING_REBALANCE and group.all_joined:
                self.complete_join(decision, group, now)
            return
        member.timer_ms = 0
        if now.ms < member.deadline_ms:
            self.set_deadline(decision, group, member, member.deadline_ms)
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
        self.remove(decision, group, member_id)
        if group.state in (State.STABLE, State.COMPLETING_REBALANCE):
            self.prepare(decision, group, now, f"removing member {member_id} on heartbeat expiration")
        elif group.state is State.PREPARING_REBALANCE and group.all_joined:
            self.complete_join(decision, group, now)

    def restart_session(self, decision: Decision, group: ClassicGroup, member: ClassicMember, now: Now) -> None:
        self.set_deadline(decision, group, member, now.ms + member.session_timeout_ms)

    def set_deadline(self, decision: Decision, group: ClassicGroup, member: ClassicMember, deadline_ms: int) -> None:
        member.deadline_ms = deadline_ms
        if not member.timer_ms or deadline_ms < member.timer_ms:
            member.timer_ms = deadline_ms
            decision.set_timer(session_key(group, member.member_id), deadline_ms)

    # Removing members

    def remove(self, decision: Decision, group: ClassicGroup, member_id: str) -> None:
        """Remove a member or a pending member id. Its pending requests fail with UNKNOWN_MEMBER_ID."""
        decision.cancel_timer(session_key(group, member_id))
        member = group.members.get(member_id)
        if member is not None:
            self.release_member(decision, group, member, ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER)
        group.remove(member_id)

    def release_member(
        self, decision: Decision, group: ClassicGroup, member: ClassicMember, error: ErrorCode, member_id: str
    ) -> None:
        token = group.take_join(member)
        if token is not None:
            decision.reply(token, JoinGroupResponse(error_code=error, member_id=member_id))
        token, member.sync_token = member.sync_token, None
        if token is not None:
            decision.reply(token, SyncGroupResponse(error_code=error))

    def release_sync(self, decision: Decision, group: ClassicGroup, member: ClassicMember, error: ErrorCode, now: Now) -> None:
        token, member.sync_token = member.sync_token, None
        if token is not None:
            decision.reply(token, SyncGroupResponse(error_code=error))
            self.restart_session(decision, group, member, now)


def session_key(group: ClassicGroup, member_id: str) -> TimerKey:
    return ("classic", "session", group.group_id, member_id)


def _join_key(group: ClassicGroup) -> TimerKey:
    return ("classic", "join", group.group_id)


def sync_key(group: ClassicGroup) -> TimerKey:
    return ("classic", "sync", group.group_id)
