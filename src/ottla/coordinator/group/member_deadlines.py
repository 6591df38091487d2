"""What the coordinator of a group of the new protocol awaits from its members, and until when.

Owns the soft state of one group: sessions, the time a member has to give up partitions, and, of members that speak the classic
protocol, to join and to sync; and for which topics the group was last looked at. All of it is lost with the shard, and begun anew
by whoever takes over.

A heartbeat moves a deadline and costs no timer: the timer that is set looks at the deadline when it fires, and is set anew if
that has moved. A timer of which nothing is noted here means nothing any more.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Literal

from ottla.coordinator.group.group import Topics
from ottla.coordinator.shard import Decision, TimerKey

Awaited = Literal["rebalance", "join", "sync"]
_NEVER: Final = -1


class MemberDeadlines:
    __slots__ = ("_awaited", "_sessions", "group_id", "looked_at", "patterns_of", "resolved_ms")

    def __init__(self, group_id: str) -> None:
        self.group_id = group_id
        self._sessions: dict[str, list[int]] = {}
        """Member -> [deadline, when the timer fires; both in ms]."""
        self._awaited: dict[tuple[Awaited, str], Hashable] = {}
        """(what, member) -> under which circumstance it counts."""
        self.looked_at: Topics | None = None
        """The topics with which the group's hash was last compared."""
        self.patterns_of = _NEVER
        """The version of the set of topics for which patterns were last resolved."""
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
        """The timer has fired: whether the member was not heard of. If it was, the timer is set anew."""
        session = self._sessions.get(member_id)
        if session is None:
            return False
        if now_ms >= session[0]:
            return True
        session[1] = session[0]
        decision.set_timer(self._key("session", member_id), session[0])
        return False

    # What else is awaited

    def expect(self, decision: Decision, what: Awaited, member_id: str, due_ms: int, circumstance: Hashable = None) -> None:
        self._awaited[what, member_id] = circumstance
        decision.set_timer(self._key(what, member_id), due_ms)

    def expect_unless_expected(self, decision: Decision, what: Awaited, member_id: str, due_ms: int) -> None:
        if (what, member_id) not in self._awaited:
            self.expect(decision, what, member_id, due_ms)

    def came(self, decision: Decision, what: Awaited, member_id: str) -> None:
        if (what, member_id) in self._awaited:
            del self._awaited[what, member_id]
            decision.cancel_timer(self._key(what, member_id))

    def is_missed(self, what: Awaited, member_id: str, circumstance: Hashable = None) -> bool:
        """The timer has fired: whether it was still awaited, under this circumstance."""
        missing = object()
        return self._awaited.pop((what, member_id), missing) == circumstance

    def member_gone(self, decision: Decision, member_id: str) -> None:
        if self._sessions.pop(member_id, None) is not None:
            decision.cancel_timer(self._key("session", member_id))
        self.came(decision, "rebalance", member_id)
        self.came(decision, "join", member_id)
        self.came(decision, "sync", member_id)

    def _key(self, what: str, member_id: str) -> TimerKey:
        return ("consumer", what, self.group_id, member_id)
