"""Rebalances that can be seen from outside."""

from __future__ import annotations

from ottla.exporter.reading import Group, Member
from ottla.exporter.rebalances import Rebalances


def classic(state: str, *members: tuple[str, list[int]]) -> Group:
    found = [Member(name, "client", "host", {"t": partitions}) for name, partitions in members]
    return Group("g", "classic", "consumer", state, 1, members=found)


def consumer(epoch: int) -> Group:
    return Group("g", "consumer", "consumer", "Stable", 1, epoch=epoch, members=[])


def counts(*rounds: Group) -> list[int | None]:
    rebalances, found = Rebalances(), []
    for group in rounds:
        rebalances.observe([group])
        found.append(rebalances.of("g"))
    return found


def test_a_group_that_stays_as_it_is() -> None:
    stable = classic("Stable", ("a", [0, 1]))
    assert counts(stable, stable, classic("Stable", ("a", [0, 1]))) == [0, 0, 0]


def test_a_member_that_joins_is_one_rebalance_however_long_it_takes() -> None:
    during = classic("PreparingRebalance", ("a", []), ("b", []))
    assert counts(classic("Stable", ("a", [0, 1])), during, during, classic("Stable", ("a", [0]), ("b", [1]))) == [0, 0, 0, 1]


def test_the_first_sight_in_a_rebalance_is_not_known_yet() -> None:
    assert counts(classic("CompletingRebalance", ("a", []))) == [None]


def test_the_consumer_protocol_counts_itself() -> None:
    assert counts(consumer(5), consumer(5), consumer(8)) == [0, 0, 3]


def test_a_group_that_changes_its_protocol_rebalanced_once() -> None:
    assert counts(classic("Stable", ("a", [0])), consumer(2), consumer(3)) == [0, 1, 2]


def test_groups_that_are_gone_are_forgotten() -> None:
    rebalances = Rebalances()
    rebalances.observe([consumer(1)])
    rebalances.forget_others(["other"])
    assert rebalances.of("g") is None
