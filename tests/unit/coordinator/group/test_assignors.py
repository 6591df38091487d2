"""Server-side assignors (F40): complete, balanced, sticky; runs and co-partitioning for range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla.coordinator.group.assignors import ASSIGNORS, Assignment, GroupSpec, MemberSpec, enabled


def topic_id(number: int) -> bytes:
    return number.to_bytes(16, "big")


T0, T1, T2, T3 = (topic_id(number) for number in range(4))
TOPICS = (T0, T1, T2, T3)


def alike(members: Mapping[str, Assignment], counts: dict[bytes, int]) -> GroupSpec:
    """Members that all subscribe to all of the topics, with what they had."""
    topics = frozenset(counts)
    return GroupSpec({name: MemberSpec(topics, assigned) for name, assigned in members.items()}, counts, homogeneous=True)


def flat(assignment: Assignment) -> set[tuple[bytes, int]]:
    return {(topic, partition) for topic, partitions in assignment.items() for partition in partitions}


def sizes(result: Mapping[str, Assignment]) -> list[int]:
    return sorted(len(flat(assignment)) for assignment in result.values())


def check_complete(group: GroupSpec, result: Mapping[str, Assignment]) -> None:
    """Each partition somebody subscribes to is assigned once, to one who does."""
    assert result.keys() == group.members.keys()
    owners = Counter(partition for assignment in result.values() for partition in flat(assignment))
    wanted = {topic for member in group.members.values() for topic in member.topics}
    assert owners == Counter({(topic, p): 1 for topic in wanted for p in range(group.partition_counts[topic])})
    for name, assignment in result.items():
        assert assignment.keys() <= group.members[name].topics
        assert all(assignment.values()), "a topic without a partition is not named"


counts_of_topics = st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 12), min_size=1)
names = st.lists(st.sampled_from([f"m{number}" for number in range(8)]), min_size=1, max_size=8, unique=True)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[list[str], dict[bytes, int]]]:
    """Who is there, and the topics; step by step. Topics grow, come and go."""
    steps = []
    grown: dict[bytes, int] = {}
    for _ in range(draw(st.integers(1, 5))):
        counts = {topic: max(count, grown.get(topic, 0)) for topic, count in draw(counts_of_topics).items()}
        grown.update(counts)
        steps.append((draw(names), counts))
    return steps


@given(histories())
@settings(max_examples=150, deadline=None)
def test_uniform_of_equal_subscriptions_is_complete_balanced_and_moves_the_least_it_can(
    steps: list[tuple[list[str], dict[bytes, int]]],
) -> None:
    held: dict[str, Assignment] = {}
    for members, counts in steps:
        group = alike({name: held.get(name, {}) for name in members}, counts)
        result = ASSIGNORS["uniform"](group)
        check_complete(group, result)
        assert max(sizes(result)) - min(sizes(result)) <= 1
        could_keep = [len({p for p in flat(group.members[name].assigned) if p[0] in counts}) for name in members]
        quota, larger = divmod(sum(counts.values()), len(members))
        best = sum(min(size, quota) for size in could_keep) + min(larger, sum(size > quota for size in could_keep))
        kept = sum(len(flat(result[name]) & flat(group.members[name].assigned)) for name in members)
        assert kept == best, "more moved than had to"
        assert ASSIGNORS["uniform"](group) == result
        held = dict(result)


def test_uniform_again_with_what_it_said_changes_nothing() -> None:
    first = ASSIGNORS["uniform"](alike({"a": {}, "b": {}, "c": {}}, {T0: 5, T1: 3}))
    assert ASSIGNORS["uniform"](alike(first, {T0: 5, T1: 3})) == first


def test_uniform_a_new_member_takes_from_those_who_have_most() -> None:
    before = {"a": {T0: frozenset(range(4))}, "b": {T0: frozenset({4, 5})}, "c": {}}
    result = ASSIGNORS["uniform"](alike(before, {T0: 6}))
    assert result["b"] == before["b"]
    assert len(result["a"][T0]) == 2
    assert result["a"][T0] < before["a"][T0]
    assert sizes(result) == [2, 2, 2]


def test_uniform_the_larger_share_stays_with_whom_it_is() -> None:
    """Four members, five partitions: the last of them has two and keeps them."""
    before = {"a": {T0: frozenset({0})}, "b": {T0: frozenset({1})}, "c": {}, "d": {T0: frozenset({2, 3})}}
    result = ASSIGNORS["uniform"](alike(before, {T0: 5}))
    assert result["d"] == before["d"]
    assert result["c"] == {T0: frozenset({4})}


def test_uniform_without_topics_assigns_nothing() -> None:
    assert ASSIGNORS["uniform"](alike({"a": {T0: frozenset({0})}, "b": {}}, {})) == {"a": {}, "b": {}}


@st.composite
def mixed_groups(draw: st.DrawFn) -> GroupSpec:
    counts = draw(counts_of_topics)
    free = {(topic, partition) for topic, count in counts.items() for partition in range(count)}
    members = {}
    for name in draw(names):
        topics = frozenset(draw(st.sets(st.sampled_from(sorted(counts)))))
        # A part of what is still free, of topics it may no longer subscribe to.
        had = draw(st.sets(st.sampled_from(sorted(free)), max_size=10)) if free else set()
        free -= had
        assigned = {topic: frozenset(p for t, p in had if t == topic) for topic in {topic for topic, _ in had}}
        members[name] = MemberSpec(topics, assigned)
    return GroupSpec(members, counts, homogeneous=False)


@given(mixed_groups())
@settings(max_examples=200, deadline=None)
def test_uniform_of_different_subscriptions_is_complete_and_no_single_move_would_help(group: GroupSpec) -> None:
    result = ASSIGNORS["uniform"](group)
    check_complete(group, result)
    load = {name: len(flat(assignment)) for name, assignment in result.items()}
    for giver, assignment in result.items():
        for topic in assignment:
            for taker, member in group.members.items():
                if topic in member.topics:
                    assert load[giver] - load[taker] <= 1, f"{taker} could have one of {giver}'s"
    again = GroupSpec(
        {name: MemberSpec(member.topics, result[name]) for name, member in group.members.items()},
        group.partition_counts,
        homogeneous=False,
    )
    assert ASSIGNORS["uniform"](again) == result, "a balanced assignment is left alone"


def test_uniform_of_different_subscriptions_keeps_what_need_not_move() -> None:
    """`a` alone may read T0; `b` and `c` share T1, and a new `d` takes no more than it must."""
    members = {
        "a": MemberSpec(frozenset({T0}), {T0: frozenset(range(4))}),
        "b": MemberSpec(frozenset({T1}), {T1: frozenset({0, 1, 2})}),
        "c": MemberSpec(frozenset({T1}), {T1: frozenset({3, 4, 5})}),
        "d": MemberSpec(frozenset({T0, T1}), {}),
    }
    result = ASSIGNORS["uniform"](GroupSpec(members, {T0: 4, T1: 6}, homogeneous=False))
    assert all(flat(result[name]) <= flat(members[name].assigned) for name in "abc")
    assert sizes(result) == [2, 2, 3, 3]


@given(names, counts_of_topics, st.data())
@settings(max_examples=100, deadline=None)
def test_range_gives_runs_the_first_of_them_longer(members: list[str], counts: dict[bytes, int], data: st.DataObject) -> None:
    topics = {name: frozenset(data.draw(st.sets(st.sampled_from(sorted(counts))))) for name in members}
    group = GroupSpec({name: MemberSpec(topics[name], {}) for name in members}, counts, homogeneous=False)
    result = ASSIGNORS["range"](group)
    check_complete(group, result)
    for topic, count in counts.items():
        subscribers = sorted(name for name in members if topic in topics[name])
        runs = [sorted(result[name].get(topic, ())) for name in subscribers]
        assert [partition for run in runs for partition in run] == (list(range(count)) if subscribers else [])
        assert [len(run) for run in runs] == [
            count // len(subscribers) + (place < count % len(subscribers)) for place in range(len(subscribers))
        ]


def test_range_gives_the_same_numbers_of_topics_that_are_alike() -> None:
    result = ASSIGNORS["range"](alike({"m0": {}, "m1": {}}, {T0: 3, T1: 3}))
    assert result == {
        "m0": {T0: frozenset({0, 1}), T1: frozenset({0, 1})},
        "m1": {T0: frozenset({2}), T1: frozenset({2})},
    }


def test_range_more_members_than_partitions_leaves_the_last_without() -> None:
    assert ASSIGNORS["range"](alike({"a": {}, "b": {}, "c": {}}, {T0: 2})) == {
        "a": {T0: frozenset({0})},
        "b": {T0: frozenset({1})},
        "c": {},
    }


def test_range_static_members_keep_their_runs_under_new_ids_and_come_first() -> None:
    def group(*ids: str) -> GroupSpec:
        topics = frozenset({T0})
        static = {name: MemberSpec(topics, {}, instance_id=f"i{number}") for number, name in enumerate(ids)}
        return GroupSpec({**static, "a": MemberSpec(topics, {})}, {T0: 6}, homogeneous=True)

    before, after = ASSIGNORS["range"](group("x", "y")), ASSIGNORS["range"](group("z", "w"))
    assert before["x"] == after["z"] == {T0: frozenset({0, 1})}
    assert before["y"] == after["w"]
    assert before["a"] == after["a"] == {T0: frozenset({4, 5})}


@pytest.mark.parametrize("name", sorted(ASSIGNORS))
def test_no_members_no_assignment(name: str) -> None:
    assert ASSIGNORS[name](GroupSpec({}, {}, homogeneous=True)) == {}


def test_names_of_the_configuration() -> None:
    assert enabled(["range", "uniform"]) == ["range", "uniform"]
    assert enabled(["org.apache.kafka.coordinator.group.assignor.RangeAssignor", "range"]) == ["range"]
    assert enabled(["com.example.Own"]) == ["uniform"]
