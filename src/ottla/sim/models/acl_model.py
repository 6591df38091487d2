"""What a principal may do, as far as an administrator was told, and the judgement of what brokers answered it.

Owns: the changes of ACLs, when each was sent and when its success was told; and when brokers were registered. Decides by rules of
its own, not with the product's (AC02, AC03).

1. From the answer to a change on, every live broker keeps to it (AC09). Live is a broker that is registered; one whose session
   expired enforces what it knew, as it serves everything else (C10), until it has registered again.
2. Between request and answer a broker may keep to the state before or to the one after.
3. A change without an answer, or with an error, may take effect at any later time. Who asks again, and is told of success, can
   rely on it as on the first answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.ports import Node
from ottla.sim.violation import require

TOPIC: Final = 2
GROUP: Final = 3
ALL: Final = 2
READ: Final = 3
WRITE: Final = 4
DESCRIBE: Final = 8
DENY: Final = 2
ALLOW: Final = 3
LITERAL: Final = 3
PREFIXED: Final = 4

_TYPE_NAMES: Final = {TOPIC: "Topic", GROUP: "Group"}
_OPERATION_NAMES: Final = {ALL: "All", READ: "Read", WRITE: "Write", DESCRIBE: "Describe"}
_PERMISSION_NAMES: Final = {DENY: "Deny", ALLOW: "Allow"}


class Rule(NamedTuple):
    """An ACL without its principal."""

    resource_type: int
    name: str
    pattern: int
    operation: int
    permission: int

    def covers(self, name: str) -> bool:
        return name.startswith(self.name) if self.pattern == PREFIXED else self.name in ("*", name)

    def is_about(self, operation: int) -> bool:
        if self.operation in (ALL, operation):
            return True
        return self.permission == ALLOW and operation == DESCRIBE and self.operation in (READ, WRITE)

    @property
    def path(self) -> str:
        root = "/kafka-acl-extended/prefixed" if self.pattern == PREFIXED else "/kafka-acl"
        return f"{root}/{_TYPE_NAMES[self.resource_type]}/{self.name}"

    def __str__(self) -> str:
        pattern = "prefix " if self.pattern == PREFIXED else ""
        operation = _OPERATION_NAMES[self.operation]
        return f"{_PERMISSION_NAMES[self.permission]} {operation} on {_TYPE_NAMES[self.resource_type]} {pattern}{self.name}"


@dataclass(slots=True)
class Change:
    """A rule is added or removed."""

    there: bool
    start_s: float
    end_s: float | None = None
    """When success was told; None: it was not."""


class AclModel:
    def __init__(self, now_s: Callable[[], float]) -> None:
        self.now_s = now_s
        self._changes: dict[tuple[str, Rule], list[Change]] = {}
        self._absences: dict[int, list[tuple[float, float | None]]] = {}
        """When a broker was not registered."""
        self.judged = 0
        self.refused = 0

    # --- changes

    def begin(self, principal: str, rules: Iterable[Rule], *, there: bool) -> list[Change]:
        """A request for the change is sent."""
        changes = []
        for rule in rules:
            changes.append(Change(there, self.now_s()))
            self._changes.setdefault((principal, rule), []).append(changes[-1])
        return changes

    def done(self, changes: Iterable[Change]) -> None:
        for change in changes:
            change.end_s = self.now_s()

    def may_be_there(self, principal: str, rule: Rule) -> set[bool]:
        """Whether the principal has a rule now; both, if a change is on its way."""
        now_s = self.now_s()
        return self._possible(principal, rule, now_s, now_s)

    # --- brokers

    def registered(self, broker_id: int, *, is_there: bool) -> None:
        """A broker has registered, or its registration is gone."""
        absences = self._absences.setdefault(broker_id, [])
        is_absent = bool(absences) and absences[-1][1] is None
        if is_there and is_absent:
            absences[-1] = (absences[-1][0], self.now_s())
        elif not is_there and not is_absent:
            absences.append((self.now_s(), None))

    def _was_absent(self, broker_id: int, start_s: float, end_s: float) -> bool:
        return any(
            gone_s <= end_s and (back_s is None or back_s >= start_s) for gone_s, back_s in self._absences.get(broker_id, ())
        )

    # --- judgement

    def judge(
        self, broker_id: int, principal: str, operation: int, resource_type: int, name: str, start_s: float, *, allowed: bool
    ) -> None:
        """A request that was sent at `start_s` is answered now."""
        end_s = self.now_s()
        if self._was_absent(broker_id, start_s, end_s):
            return
        self.judged += 1
        self.refused += not allowed
        expected = self._expected(principal, operation, resource_type, name, start_s, end_s)
        require(
            allowed in expected,
            "acl",
            f"broker {broker_id} {'allows' if allowed else 'refuses'} {principal} {_OPERATION_NAMES[operation]} on "
            f"{_TYPE_NAMES[resource_type]} {name}, asked at {start_s:.6f}: {self._shown(principal)}",
        )

    def _expected(self, principal: str, operation: int, resource_type: int, name: str, start_s: float, end_s: float) -> set[bool]:
        """The decisions that are right at some moment between two times."""
        may_allow = must_allow = may_deny = must_deny = False
        for of, rule in self._changes:
            if of != principal or rule.resource_type != resource_type or not rule.covers(name) or not rule.is_about(operation):
                continue
            possible = self._possible(principal, rule, start_s, end_s)
            if rule.permission == ALLOW:
                may_allow |= True in possible
                must_allow |= possible == {True}
            else:
                may_deny |= True in possible
                must_deny |= possible == {True}
        expected = set()
        if may_allow and not must_deny:
            expected.add(True)
        if may_deny or not must_allow:
            expected.add(False)
        return expected

    def _possible(self, principal: str, rule: Rule, start_s: float, end_s: float) -> set[bool]:
        """Whether a rule was there at some moment between two times."""
        before, found = False, set()
        for change in self._changes.get((principal, rule), ()):
            if change.end_s is not None and change.end_s <= start_s:
                before = change.there
            elif change.start_s <= end_s:
                found.add(change.there)
        return found | {before}

    def _shown(self, principal: str) -> str:
        shown = []
        for (of, rule), changes in self._changes.items():
            if of == principal and changes:
                last = changes[-1]
                told = f"told at {last.end_s:.6f}" if last.end_s is not None else f"sent at {last.start_s:.6f}"
                shown.append(f"{rule} {'added' if last.there else 'removed'}, {told}")
        return "; ".join(shown) or "it has no ACLs"

    def check_tree(self, get: Callable[[str], Node | None], principals: Sequence[str], rules: Iterable[Rule]) -> None:
        """The tree has the ACLs that were added and not removed: no change has overwritten another (CV06)."""
        for rule in rules:
            node = get(rule.path)
            found = json.loads(node.data)["acls"] if node is not None and node.data else []
            for principal in principals:
                is_there = any(
                    (each["principal"], each["operation"], each["permissionType"])
                    == (f"User:{principal}", _OPERATION_NAMES[rule.operation], _PERMISSION_NAMES[rule.permission])
                    for each in found
                )
                require(
                    is_there in self.may_be_there(principal, rule),
                    "acl",
                    f"{rule.path}: {rule} of {principal} is {'there' if is_there else 'missing'}: {self._shown(principal)}",
                )
