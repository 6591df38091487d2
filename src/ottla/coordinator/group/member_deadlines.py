"""The deadlines of the members of one consumer group.

Owns the soft state of the group: sessions, rebalance timeouts, for classic members also join and sync timeouts, and which topics
the group was last compared with. It is lost with the shard; a new coordinator starts all deadlines again.

A heartbeat moves a deadline and sets no timer. The timer that is set compares the deadline when it fires, and is set again if the
deadline has moved. A timer without a deadline here is ignored.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Literal

from ottla.coordinator.group.group import Topics
from ottla.coordinator.shard import Decision, TimerKey

Timeout = Literal["rebalance", "join", "sync"]
_NEVER: Final = -1


class MemberDeadlines:
    __slots__ = ("_pending", "_sessions", "group_id", "looked_at", "patterns_of", "resolved_ms")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self._sessions: dict[str, list[int]] = {}
        """Member -> [deadline, when the timer fires], in ms."""
        self._pending: dict[tuple[Timeout, str], Hashable] = {}
        """(timeout, member) -> the condition under which it counts."""
        self.looked_at: Topics | None = None
        """The topics with which the metadata hash of the group was last compared."""
        self.patterns_of = _NEVER
        """The version of the topics for which the regular expressions were last resolved."""
        self.resolved_ms = 0

    # Sessions

    def extend_session(self, decision: Decision, member_id: str, deadline_ms: int) -> None:
        session = self._sessions.get(member_id)
        if session is None:
            self._sessions[member_id] = [deadline_ms, deadline_ms]
        elif deadline_ms >= session[1]:
            session[0] = deadline_ms
            return
        else:
            session[0] = session[1] = deadline_ms
        decision.set_timer(self._key("session", member_id), deadline_ms)

    def session_is_over(self, decision: Decision, member_id: str, now_ms: int) -> bool:
        """The session timer fired: whether the session is over. If not, the timer is set again."""
        session = self._sessions.get(member_id)
        if session is None:
            return False
        if now_ms >= session[0]:
            return True
        session[1] = session[0]
        decision.set_timer(self._key("session", member_id), session[0])
        return False

    # Rebalance, join and sync timeouts

    def start(self, decision: Decision, what: Timeout, member_id: str, due_ms: int, condition: Hashable = None) -> None:
        self._pending[what, member_id] = condition
        decision.set_timer(self._key(what, member_id), due_ms)

    def start_unless_pending(self, decision: Decision, what: Timeout, member_id: str, due_ms: int) -> None:
        if (what, member_id) not in self._pending:
            self.start(decision, what, member_id, due_ms)

    def cancel(self, decision: Decision, what: Timeout, member_id: str) -> None:
        if (what, member_id) in self._pending:
            del self._pending[what, member_id]
            decision.cancel_timer(self._key(what, member_id))

    def is_over(self, what: Timeout, member_id: str, condition: Hashable = None) -> bool:
        """The timer fired: whether the timeout was still pending, under this condition."""
        missing = object()
        return self._pending.pop((what, member_id), missing) == condition

    def remove_member(self, decision: Decision, member_id: str) -> None:
        if self._sessions.pop(member_id, None) is not None:
            decision.cancel_timer(self._key("session", member_id))
        self.cancel(decision, "rebalance", member_id)
        self.cancel(decision, "join", member_id)
        self.cancel(decision, "sync", member_id)

    def _key(self, what: str, member_id: str) -> TimerKey:
        return ("consumer", what, self.group_id, member_id)
