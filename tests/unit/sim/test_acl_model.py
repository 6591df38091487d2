"""The model of ACL changes, broken by hand: what no broker may answer is reported, what one may answer is not."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.ports import Node
from ottla.sim.models.acl_model import ALL, ALLOW, DENY, DESCRIBE, LITERAL, PREFIXED, READ, TOPIC, WRITE, AclModel, Rule
from ottla.sim.violation import Violation

MAY_READ = Rule(TOPIC, "vault", LITERAL, READ, ALLOW)
MAY_ALL = Rule(TOPIC, "va", PREFIXED, ALL, ALLOW)
NOT_READ = Rule(TOPIC, "*", LITERAL, READ, DENY)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Any:
    return Clock()


@pytest.fixture
def model(clock: Any) -> Any:
    return AclModel(clock)


def change(model: Any, clock: Any, rule: Any, start: Any, end: Any, *, there: Any) -> None:
    clock.now = start
    changes = model.begin("alice", [rule], there=there)
    if end is not None:
        clock.now = end
        model.done(changes)


def answers(model: Any, clock: Any, start: Any, end: Any, operation: Any = READ, broker: Any = 1) -> set[bool]:
    """The answers that are no violation."""
    found = set()
    clock.now = end
    for allowed in (True, False):
        try:
            model.judge(broker, "alice", operation, TOPIC, "vault", start, allowed=allowed)
        except Violation:
            continue
        found.add(allowed)
    return found


def test_ac09_a_change_holds_from_its_answer_on_and_may_hold_before(model: Any, clock: Any) -> None:
    assert answers(model, clock, 0, 1) == {False}
    change(model, clock, MAY_READ, 2, 4, there=True)
    assert answers(model, clock, 0, 1.5) == {False}
    assert answers(model, clock, 1, 3) == {True, False}
    assert answers(model, clock, 3, 5) == {True, False}
    assert answers(model, clock, 4, 5) == {True}
    change(model, clock, MAY_READ, 6, 8, there=False)
    assert answers(model, clock, 5, 7) == {True, False}
    assert answers(model, clock, 8, 9) == {False}


def test_a_change_without_an_answer_may_take_effect_at_any_time(model: Any, clock: Any) -> None:
    change(model, clock, MAY_READ, 1, None, there=True)
    assert answers(model, clock, 100, 101) == {True, False}
    change(model, clock, MAY_READ, 200, 201, there=True)
    assert answers(model, clock, 300, 301) == {True}, "asked again, and told of success"


def test_a_denial_beats_what_is_allowed_and_reading_implies_describing(model: Any, clock: Any) -> None:
    change(model, clock, MAY_ALL, 1, 2, there=True)
    change(model, clock, NOT_READ, 3, 4, there=True)
    assert answers(model, clock, 5, 6) == {False}
    assert answers(model, clock, 5, 6, WRITE) == {True}
    assert answers(model, clock, 5, 6, DESCRIBE) == {True}, "DENY READ leaves DESCRIBE"
    change(model, clock, MAY_ALL, 7, 8, there=False)
    change(model, clock, MAY_READ, 7, 8, there=True)
    assert answers(model, clock, 9, 10, DESCRIBE) == {True}
    assert answers(model, clock, 9, 10, WRITE) == {False}


def test_a_broker_that_is_not_registered_is_not_judged(model: Any, clock: Any) -> None:
    clock.now = 1
    model.registered(1, is_there=False)
    assert answers(model, clock, 0, 2) == {True, False}
    assert answers(model, clock, 2, 3) == {True, False}
    assert answers(model, clock, 2, 3, broker=2) == {False}
    clock.now = 4
    model.registered(1, is_there=True)
    assert answers(model, clock, 3, 5) == {True, False}
    assert answers(model, clock, 4.5, 5) == {False}


def test_cv06_a_change_that_another_has_overwritten_is_missed_in_the_tree(model: Any, clock: Any) -> None:
    change(model, clock, MAY_READ, 1, 2, there=True)
    acl = b'{"principal":"User:alice","operation":"Read","permissionType":"Allow","host":"*"}'
    model.check_tree(lambda path: Node(b'{"acls":[' + acl + b"]}", 0, 0), ["alice"], [MAY_READ])
    with pytest.raises(Violation, match="missing"):
        model.check_tree(lambda path: None, ["alice"], [MAY_READ])
    change(model, clock, MAY_READ, 3, 4, there=False)
    with pytest.raises(Violation, match="is there"):
        model.check_tree(lambda path: Node(b'{"acls":[' + acl + b"]}", 0, 0), ["alice"], [MAY_READ])
