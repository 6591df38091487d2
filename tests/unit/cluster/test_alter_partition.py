"""A leader proposes another ISR (KIP-497, KIP-841, KIP-903; C05, C06)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ottla.cluster.broker_changes import IsrProposal, alter_partition
from ottla.cluster.image import BrokerImage, ClusterImage, PartitionImage
from ottla.errors import ErrorCode

IMAGE = ClusterImage("c", 1, {number: BrokerImage(number, 100 + number, None, ()) for number in (1, 2, 3)})
PARTITION = PartitionImage(1, 5, (1, 2), (1, 2, 3, 4), 7)


def proposal(
    *isr: int, leader: int = 1, leader_epoch: int = 5, partition_epoch: int = 7, recovering: bool = False
) -> IsrProposal:
    return IsrProposal(leader, leader_epoch, [(broker, 100 + broker) for broker in isr], partition_epoch, recovering)


def test_an_accepted_proposal_keeps_the_leader_epoch() -> None:
    after = alter_partition(IMAGE, PARTITION, proposal(1, 2, 3))
    assert after == replace(PARTITION, isr=(1, 2, 3), partition_epoch=8)
    assert alter_partition(IMAGE, PARTITION, proposal(1)) == replace(PARTITION, isr=(1,), partition_epoch=8)


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        pytest.param(proposal(1, 2, 3, partition_epoch=6), ErrorCode.INVALID_UPDATE_VERSION, id="C05-stale-partition-epoch"),
        pytest.param(proposal(1, 2, 3, partition_epoch=8), ErrorCode.NOT_CONTROLLER, id="newer-than-we-know"),
        pytest.param(proposal(1, 2, 3, leader_epoch=6), ErrorCode.NOT_CONTROLLER, id="leader-newer-than-we-know"),
        pytest.param(proposal(1, 2, 3, leader_epoch=4), ErrorCode.FENCED_LEADER_EPOCH, id="previous-leader"),
        pytest.param(proposal(2, 1, leader=2), ErrorCode.INVALID_REQUEST, id="not-the-leader"),
        pytest.param(proposal(1, 2, 4), ErrorCode.INELIGIBLE_REPLICA, id="C06-dead"),
        pytest.param(proposal(1, 2, 9), ErrorCode.INVALID_REQUEST, id="no-replica"),
        pytest.param(proposal(2, 3), ErrorCode.INVALID_REQUEST, id="without-the-leader"),
        pytest.param(proposal(1, 3, 3), ErrorCode.INVALID_REQUEST, id="twice"),
        pytest.param(proposal(1, recovering=True), ErrorCode.INVALID_REQUEST, id="recovered-does-not-recover-again"),
        pytest.param(IsrProposal(1, 5, [(1, 101), (3, 99)], 7), ErrorCode.INELIGIBLE_REPLICA, id="C06-previous-broker-epoch"),
    ],
)
def test_what_is_refused(asked: IsrProposal, code: ErrorCode) -> None:
    assert alter_partition(IMAGE, PARTITION, asked) is code


def test_an_answer_that_was_lost_may_be_asked_for_again() -> None:
    """C05: recognised as success, whatever the epoch it was asked with."""
    after = alter_partition(IMAGE, PARTITION, proposal(1, 2, 3))
    assert isinstance(after, PartitionImage)
    assert alter_partition(IMAGE, after, proposal(3, 2, 1)) is after


def test_who_is_shutting_down_or_lost_its_directory_does_not_come_in() -> None:
    """C06."""
    leaving = replace(IMAGE, shutting_down=frozenset({3}))
    assert alter_partition(leaving, PARTITION, proposal(1, 2, 3)) is ErrorCode.INELIGIBLE_REPLICA
    broken = replace(PARTITION, offline=(3,))
    assert alter_partition(IMAGE, broken, proposal(1, 2, 3)) is ErrorCode.INELIGIBLE_REPLICA
    # A leader that cannot be replaced goes on leading while it waits to stop.
    leader_leaves = replace(IMAGE, shutting_down=frozenset({1}))
    assert isinstance(alter_partition(leader_leaves, PARTITION, proposal(1)), PartitionImage)


def test_a_replica_whose_epoch_the_leader_does_not_know_is_taken() -> None:
    assert isinstance(alter_partition(IMAGE, PARTITION, IsrProposal(1, 5, [(1, -1), (2, -1), (3, -1)], 7)), PartitionImage)


def test_a_recovering_leader_says_when_it_is_done() -> None:
    recovering = PartitionImage(1, 5, (1,), (1, 2, 3), 7, recovering=True)
    assert alter_partition(IMAGE, recovering, proposal(1, 2, recovering=True)) is ErrorCode.INVALID_REQUEST
    assert alter_partition(IMAGE, recovering, proposal(1)) == replace(recovering, recovering=False, partition_epoch=8)
    assert alter_partition(IMAGE, recovering, proposal(1, recovering=True)) is recovering
