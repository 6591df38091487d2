"""The chaos test's own reasoning about ownership: it finds two owners, and blames nobody who only believes."""

from __future__ import annotations

from tests.chaos.proof import Notes, owned_twice

SESSION = 100


def member(name: str, *moves: tuple[int, str, list[int]], commits: list[tuple[int, int]]) -> Notes:
    return Notes(name, list(moves), commits)


def test_two_members_that_both_commit_are_two_owners() -> None:
    one = member("one", (10, "A", [0]), commits=[(20, 25), (60, 65)])
    two = member("two", (30, "A", [0]), commits=[(40, 45), (50, 55)])
    assert len(owned_twice([one, two], SESSION)) == 1
    assert len(owned_twice([one, two], 0)) == 1, "also without the session"


def test_given_back_before_it_was_given_is_in_order() -> None:
    one = member("one", (10, "A", [0, 1]), (50, "R", [0]), commits=[(20, 25), (60, 65)])
    two = member("two", (55, "A", [0]), commits=[(70, 75)])
    assert owned_twice([one, two], SESSION) == []


def test_taken_before_the_session_was_over_is_found_although_the_member_was_dead() -> None:
    dead = member("dead", (10, "A", [0]), commits=[(20, 25)])
    heir = member("heir", (90, "A", [0]), commits=[(100, 105)])
    assert len(owned_twice([dead, heir], SESSION)) == 1
    assert owned_twice([dead, heir], 80) == []


def test_belief_without_an_accepted_commit_proves_nothing() -> None:
    paused = member("paused", (10, "A", [0]), (500, "L", [0]), commits=[(20, 25)])
    heir = member("heir", (130, "A", [0]), commits=[(140, 145)])
    late = member("late", (200, "A", [0]), (210, "L", [0]), commits=[])
    assert owned_twice([paused, heir, late], SESSION) == []


def test_a_long_span_is_compared_with_all_that_follow() -> None:
    one = member("one", (0, "A", [0]), commits=[(1, 2), (1000, 1001)])
    two = member("two", (3, "A", [0]), (20, "R", [0]), commits=[(4, 5)])
    three = member("three", (30, "A", [0]), commits=[(40, 50)])
    assert len(owned_twice([one, two, three], SESSION)) == 2
