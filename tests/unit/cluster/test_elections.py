"""Who leads, and who counts as in sync, when brokers come and go (F51, F54, C07, R16)."""

from __future__ import annotations

import pytest

from ottla.cluster.elections import elect_leader, elect_preferred
from ottla.cluster.image import NO_LEADER, PartitionImage


def partition(leader: int, isr: tuple[int, ...], replicas: tuple[int, ...] = (1, 2, 3)) -> PartitionImage:
    return PartitionImage(leader, 5, isr, replicas, 7)


def outcome(after: PartitionImage) -> tuple[int, tuple[int, ...], int, int]:
    return after.leader, after.isr, after.leader_epoch, after.partition_epoch


@pytest.mark.parametrize(
    ("before", "here", "expected"),
    [
        pytest.param(partition(1, (1, 2, 3)), {1, 2, 3}, (1, (1, 2, 3), 5, 7), id="nothing-to-do"),
        pytest.param(partition(1, (1, 2, 3)), {2, 3}, (2, (2, 3), 6, 8), id="leader-gone"),
        pytest.param(partition(1, (3, 2, 1)), {2, 3}, (2, (3, 2), 6, 8), id="replica-order-not-isr-order"),
        pytest.param(partition(1, (1, 3)), {2, 3}, (3, (3,), 6, 8), id="only-from-the-in-sync"),
        pytest.param(partition(1, (1, 2, 3)), {1, 3}, (1, (1, 3), 6, 8), id="follower-gone"),
        pytest.param(partition(1, (1, 2)), {1, 2}, (1, (1, 2), 5, 7), id="one-that-was-not-in-sync-gone"),
        pytest.param(partition(1, (1,)), {2, 3}, (NO_LEADER, (1,), 6, 8), id="nobody-may"),
        pytest.param(partition(1, (1, 2)), {3}, (NO_LEADER, (1, 2), 6, 8), id="both-gone-at-once-both-stay-in-sync"),
        pytest.param(partition(NO_LEADER, (1,)), {2, 3}, (NO_LEADER, (1,), 5, 7), id="still-nobody"),
        pytest.param(partition(NO_LEADER, (1,)), {1, 2, 3}, (1, (1,), 6, 8), id="the-last-in-sync-is-back"),
        pytest.param(partition(NO_LEADER, (1, 2)), {2}, (2, (2,), 6, 8), id="one-of-two-is-back"),
    ],
)
def test_a_leader_comes_from_the_in_sync_replicas(
    before: PartitionImage, here: set[int], expected: tuple[int, tuple[int, ...], int, int]
) -> None:
    after = elect_leader(before, here, here, unclean=False)
    assert outcome(after) == expected
    assert elect_leader(after, here, here, unclean=False) is after


def test_unclean_elects_the_first_that_lives_and_it_alone_is_in_sync() -> None:
    """R16."""
    after = elect_leader(partition(1, (1,)), {2, 3}, {2, 3}, unclean=True)
    assert outcome(after) == (2, (2,), 6, 8)
    assert after.recovering
    clean = elect_leader(partition(1, (1, 3)), {2, 3}, {2, 3}, unclean=True)
    assert outcome(clean) == (3, (3,), 6, 8)
    assert not clean.recovering


def test_who_is_asked_to_go_leads_on_if_nobody_else_can() -> None:
    """C07: a controlled shutdown leaves no partition without a leader."""
    before = partition(1, (1,))
    assert elect_leader(before, {1, 2, 3}, {2, 3}, unclean=False) is before
    moved = elect_leader(partition(1, (1, 2)), {1, 2, 3}, {2, 3}, unclean=False)
    assert outcome(moved) == (2, (2,), 6, 8)
    follower = elect_leader(partition(1, (1, 2, 3)), {1, 2, 3}, {1, 3}, unclean=False)
    assert outcome(follower) == (1, (1, 3), 6, 8)


def test_an_asked_to_go_leader_is_not_replaced_uncleanly() -> None:
    before = partition(1, (1,))
    assert elect_leader(before, {1, 2, 3}, {2, 3}, unclean=True) is before


def test_the_preferred_leader_is_the_first_replica_if_in_sync_and_here() -> None:
    """F54."""
    led = elect_preferred(partition(2, (1, 2)), {1, 2})
    assert led is not None
    assert outcome(led) == (1, (1, 2), 6, 8)
    assert elect_preferred(partition(2, (2,)), {1, 2}) is None
    assert elect_preferred(partition(2, (1, 2)), {2}) is None
    already = partition(1, (1, 2))
    assert elect_preferred(already, {1, 2}) is already
