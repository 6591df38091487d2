"""A partition on its way to other replicas (KIP-455; F56, R18)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.cluster.image import BrokerImage, ClusterImage, PartitionImage
from ottla.cluster.reassignment import begin, check_target, finished, is_moving, origin, target
from ottla.errors import ErrorCode, KafkaError

ALL = {1, 2, 3, 4, 5, 6}
IMAGE = ClusterImage("c", 1, {number: BrokerImage(number, number, None, ()) for number in ALL})
STILL = PartitionImage(1, 5, (1, 2, 3), (1, 2, 3), 7)


def test_meanwhile_it_has_both_and_the_target_stands_first() -> None:
    moving = begin(STILL, (4, 5, 6), ALL)
    assert moving.replicas == (4, 5, 6, 1, 2, 3)
    assert (moving.adding, moving.removing) == ((4, 5, 6), (1, 2, 3))
    assert (moving.leader, moving.isr, moving.leader_epoch, moving.partition_epoch) == (1, (1, 2, 3), 6, 8)
    assert (origin(moving), target(moving)) == ((1, 2, 3), (4, 5, 6))


def test_the_old_ones_leave_only_when_all_of_the_target_are_in_sync() -> None:
    """R18."""
    moving = begin(STILL, (4, 5, 6), ALL)
    assert finished(replace(moving, isr=(1, 2, 3, 4, 5)), ALL) is None
    there = finished(replace(moving, isr=(1, 2, 3, 4, 5, 6)), ALL)
    assert there is not None
    assert (there.replicas, there.adding, there.removing) == ((4, 5, 6), (), ())
    assert (there.leader, there.isr, there.leader_epoch) == (4, (4, 5, 6), 7)
    assert finished(there, ALL) is None


def test_a_leader_that_stays_goes_on_leading() -> None:
    moving = begin(STILL, (4, 1), ALL)
    there = finished(replace(moving, isr=(1, 2, 3, 4)), ALL)
    assert there is not None
    assert (there.leader, there.isr, there.replicas) == (1, (1, 4), (4, 1))


def test_it_does_not_arrive_where_nobody_can_lead() -> None:
    moving = begin(STILL, (4, 5), ALL)
    assert finished(replace(moving, isr=(1, 2, 3, 4, 5)), {1, 2, 3}) is None


def test_cancelled_it_goes_back_to_where_it_was() -> None:
    """R18: cancel restores."""
    moving = replace(begin(STILL, (4, 2, 6), ALL), isr=(1, 2, 3, 4))
    back = begin(moving, origin(moving), ALL)
    assert set(back.replicas) == {1, 2, 3}
    assert (back.adding, back.removing) == ((), ())
    assert set(back.isr) == {1, 2, 3}
    assert back.leader == 1
    assert back.leader_epoch == moving.leader_epoch + 1


def test_cancelled_while_a_new_replica_leads() -> None:
    moving = replace(begin(STILL, (4, 5, 6), ALL), isr=(1, 2, 4), leader=4)
    back = begin(moving, origin(moving), ALL)
    assert back.leader == 1
    assert back.isr == (1, 2)


@pytest.mark.parametrize("wanted", [(1, 2, 3), (1, 5)])
def test_what_only_new_replicas_have_is_not_given_up(wanted: tuple[int, ...]) -> None:
    """R18: the old ones fell behind on the way. Going back, or elsewhere, would take all that are in sync."""
    moving = replace(begin(STILL, (4, 2, 6), ALL), isr=(4, 6), leader=4)
    with pytest.raises(KafkaError) as refused:
        begin(moving, wanted, ALL)
    assert refused.value.code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert begin(moving, (4, 1), ALL).isr == (4,)


def test_it_is_not_cancelled_where_nobody_could_lead() -> None:
    moving = replace(begin(STILL, (4, 2, 6), ALL), isr=(1, 4), leader=4)
    with pytest.raises(KafkaError):
        begin(moving, origin(moving), ALL - {1})
    assert begin(replace(moving, leader=-1), origin(moving), ALL - {1}).isr == (1,), "without a leader it was before"


def test_another_target_replaces_the_first() -> None:
    moving = replace(begin(STILL, (4, 5, 6), ALL), isr=(1, 2, 3, 4))
    other = begin(moving, (2, 5), ALL)
    assert set(other.replicas) == {1, 2, 3, 5}
    assert other.adding == (5,)
    assert set(other.removing) == {1, 3}
    assert set(other.isr) == {1, 2, 3}


def test_another_order_and_fewer_replicas_need_no_copying() -> None:
    reordered = begin(STILL, (3, 1, 2), ALL)
    assert not is_moving(reordered)
    assert (reordered.replicas, reordered.leader) == ((3, 1, 2), 1)
    fewer = finished(begin(STILL, (2, 3), ALL), ALL)
    assert fewer is not None
    assert (fewer.replicas, fewer.leader, fewer.isr) == ((2, 3), 2, (2, 3))


@pytest.mark.parametrize(
    ("wanted", "code"),
    [
        ((), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 1), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, -2), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ((1, 9), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_targets_that_are_refused(wanted: tuple[int, ...], code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        check_target(IMAGE, STILL, wanted, factor_may_change=True)
    assert caught.value.code == code


def test_the_number_of_replicas_may_be_held_fixed() -> None:
    """KIP-860."""
    check_target(IMAGE, STILL, (4, 5, 6), factor_may_change=False)
    with pytest.raises(KafkaError) as caught:
        check_target(IMAGE, STILL, (4, 5), factor_may_change=False)
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR


def test_a_replica_that_is_there_may_be_on_a_broker_that_is_not() -> None:
    check_target(replace(IMAGE, brokers={2: IMAGE.brokers[2], 4: IMAGE.brokers[4]}), STILL, (1, 4), factor_may_change=True)
