"""Brokers come and go: one decision for all partitions (F51, F55, F61, C09)."""

from __future__ import annotations

from dataclasses import replace

from ottla.cluster.broker_changes import (
    led_by,
    with_brokers,
    with_consecutive_epochs,
    with_elections,
    with_offline,
    with_partitions,
)
from ottla.cluster.elections import unbalanced
from ottla.cluster.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.cluster.tree_changes import split_changes, state_changes
from ottla.ports import Change, Check, Create, SetData


def broker(number: int, epoch: int = 1) -> BrokerImage:
    return BrokerImage(number, epoch, None, ())


def image(*topics: TopicImage, brokers: tuple[int, ...] = (1, 2, 3)) -> ClusterImage:
    return ClusterImage("c", 1, {number: broker(number) for number in brokers}).with_topics(topics)


def topic(name: str, *partitions: PartitionImage) -> TopicImage:
    return TopicImage(name, name.encode().ljust(16, b"\0"), partitions)


def never(_: TopicImage) -> bool:
    return False


P1 = PartitionImage(1, 0, (1, 2, 3), (1, 2, 3))
P2 = PartitionImage(2, 0, (2, 3, 1), (2, 3, 1))
LONE = PartitionImage(1, 0, (1,), (1,))


def test_one_failure_moves_all_leaderships_at_once() -> None:
    """F55; what is not concerned stays the same object."""
    before = image(topic("a", P1, P2, LONE), topic("b", PartitionImage(3, 4, (3, 2), (3, 2), 9)))
    after = with_elections(with_brokers(before, {2: broker(2), 3: broker(3)}), never)
    first, second, lone = after.topics["a"].partitions
    assert (first.leader, first.isr, first.leader_epoch) == (2, (2, 3), 1)
    assert (second.leader, second.isr, second.leader_epoch) == (2, (2, 3), 1)
    assert (lone.leader, lone.isr) == (NO_LEADER, (1,))
    assert after.topics["b"] is before.topics["b"]
    changes = state_changes(before, after, 8)
    assert [change.path for change in changes] == [f"/brokers/topics/a/partitions/{number}/state" for number in range(3)]
    assert all(isinstance(change, SetData) and change.version == 0 for change in changes)


def test_who_comes_back_leads_what_nobody_could() -> None:
    gone = with_elections(with_brokers(image(topic("a", LONE)), {2: broker(2)}), never)
    back = with_elections(with_brokers(gone, {1: broker(1, 5), 2: broker(2)}), never)
    assert (back.topics["a"].partitions[0].leader, back.topics["a"].partitions[0].leader_epoch) == (1, 2)


def test_unclean_only_for_topics_that_allow_it() -> None:
    """R16."""
    lost = PartitionImage(1, 3, (1,), (1, 2), 4)
    before = with_brokers(image(topic("a", lost), topic("b", lost)), {2: broker(2)})
    after = with_elections(before, lambda each: each.name == "b")
    assert after.topics["a"].partitions[0].leader == NO_LEADER
    assert (after.topics["b"].partitions[0].leader, after.topics["b"].partitions[0].isr) == (2, (2,))


def test_a_new_life_is_not_shutting_down_and_has_its_directories_again() -> None:
    before = replace(image(topic("a", replace(P1, offline=(2,)))), shutting_down=frozenset({2}))
    after = with_brokers(before, {1: broker(1), 2: broker(2, 9), 3: broker(3)})
    assert after.shutting_down == frozenset()
    assert after.topics["a"].partitions[0].offline == ()


def test_replicas_in_a_failed_directory_neither_lead_nor_count() -> None:
    """L06 in a cluster."""
    before = image(topic("a", P1, P2))
    after = with_elections(with_offline(before, 1, [("a", 0)]), never)
    assert (after.topics["a"].partitions[0].leader, after.topics["a"].partitions[0].isr) == (2, (2, 3))
    assert after.topics["a"].partitions[1] is P2
    assert with_offline(after, 1, []).topics["a"].partitions[0].offline == ()


def test_a_reassignment_ends_as_soon_as_the_target_is_in_sync() -> None:
    """R18, C09: also if the controller that began it is gone."""
    moving = PartitionImage(1, 5, (1, 2, 3), (3, 2, 1), 7, adding=(3,), removing=(1,))
    before = image(topic("a", moving))
    after = with_consecutive_epochs(before, with_elections(before, never))
    arrived = after.topics["a"].partitions[0]
    assert (arrived.replicas, arrived.isr, arrived.leader) == ((3, 2), (2, 3), 3)
    assert arrived.partition_epoch == 8
    paths = [change.path for change in state_changes(before, after, 1)]
    assert paths == ["/brokers/topics/a", "/brokers/topics/a/partitions/0/state"]


def test_several_steps_are_one_write() -> None:
    before = image(topic("a", P1))
    after = with_partitions(before, [("a", 0, replace(P1, leader=2, leader_epoch=3, partition_epoch=3))])
    assert with_consecutive_epochs(before, after).topics["a"].partitions[0].partition_epoch == 1
    assert with_consecutive_epochs(before, after).topics["a"].partitions[0].leader_epoch == 3


def test_what_a_broker_leads_although_others_could() -> None:
    """C07."""
    assert led_by(image(topic("a", P1, P2, LONE)), 1) == [("a", 0)]


def test_balance_moves_what_exceeds_the_percentage() -> None:
    """F54."""
    away = replace(P1, leader=2)
    balanced = image(topic("a", *[P1] * 9, away))
    assert unbalanced(balanced, 10) == []
    found = unbalanced(image(topic("a", *[P1] * 8, away, away)), 10)
    assert [(name, number, partition.leader) for name, number, partition in found] == [("a", 8, 1), ("a", 9, 1)]
    assert all(partition.leader_epoch == 1 for _, _, partition in found)
    not_in_sync = replace(away, isr=(2, 3))
    assert unbalanced(image(topic("a", not_in_sync)), 10) == []
    assert unbalanced(image(topic("a", away), brokers=(2, 3)), 10) == []


def test_too_much_for_one_write_is_cut_and_each_piece_is_fenced() -> None:
    """C02, C09."""
    fence = Check("/controller_epoch", 3)
    changes: list[Change] = [Create(f"/brokers/topics/t/partitions/{number}", b"x" * 100) for number in range(10)]
    parts = split_changes([fence, *changes], 500)
    assert len(parts) > 1
    assert all(part[0] == fence and len(part) > 1 for part in parts)
    assert [change for part in parts for change in part[1:]] == changes
    assert split_changes([fence, *changes], 1 << 60) == [[fence, *changes]]
    assert split_changes([fence], 10) == [[fence]]
