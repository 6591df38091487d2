"""The leader's rules by their cases (F48, R01-R03, R12-R14, C05): positions, ISR and high watermark without any broker."""

from __future__ import annotations

from ottla.errors import ErrorCode
from ottla.replication.leader import IsrProposal, Leadership
from ottla.types import NO_OFFSET

LAG_MS = 1000


def leadership(
    isr: tuple[int, ...] = (1, 2, 3), *, epoch_start: int = 10, min_isr: int = 1, alive: set[int] | None = None
) -> Leadership:
    living = alive if alive is not None else {1, 2, 3, 4}
    return Leadership(
        1,
        5,
        epoch_start,
        (1, 2, 3),
        isr,
        7,
        0,
        lag_time_max_ms=LAG_MS,
        min_isr=min_isr,
        is_alive=living.__contains__,
    )


def fetch(leader: Leadership, replica: int, offset: int, end: int, *, hw: int = 0, now: int = 0) -> IsrProposal | None:
    return leader.follower_fetched(replica, offset, 0, end, hw, now)


def test_r01_the_high_watermark_is_the_smallest_end_of_the_isr() -> None:
    leader = leadership()
    assert leader.high_watermark(11, 0) == NO_OFFSET  # nobody has fetched in this epoch yet
    fetch(leader, 2, 11, 11)
    assert leader.high_watermark(11, 0) == NO_OFFSET
    fetch(leader, 3, 10, 11)
    assert leader.high_watermark(11, 0) == 10
    fetch(leader, 3, 11, 11)
    assert leader.high_watermark(11, 0) == 11


def test_r02_a_proposed_member_counts_before_the_controller_answers() -> None:
    leader = leadership(isr=(1, 2))
    fetch(leader, 2, 10, 10)
    proposal = fetch(leader, 3, 10, 10, hw=10)
    assert proposal is not None
    assert proposal.isr == (1, 2, 3)
    assert proposal.partition_epoch == 7
    assert leader.maximal_isr == {1, 2, 3}
    fetch(leader, 2, 20, 20, now=2 * LAG_MS)
    assert leader.high_watermark(20, 2 * LAG_MS) == 10


def test_r02_a_member_proposed_to_leave_counts_until_the_controller_answers() -> None:
    leader = leadership()
    fetch(leader, 2, 10, 10)
    fetch(leader, 3, 10, 10)
    late = LAG_MS + 1
    fetch(leader, 2, 20, 20, now=late)
    proposal = leader.shrink(20, late)
    assert proposal is not None
    assert proposal.isr == (1, 2)
    assert leader.high_watermark(20, late) == 10
    assert leader.confirmed(proposal, (1, 2), 5, 8)
    assert leader.high_watermark(20, late) == 20
    assert (leader.isr, leader.partition_epoch, leader.pending) == ((1, 2), 8, None)


def test_r03_no_growth_below_the_start_of_the_epoch() -> None:
    leader = leadership(isr=(1,), epoch_start=10)
    assert fetch(leader, 2, 8, 12, hw=5) is None
    assert fetch(leader, 2, 10, 12, hw=5) is not None


def test_r03_no_growth_below_the_high_watermark() -> None:
    leader = leadership(isr=(1,), epoch_start=10)
    assert fetch(leader, 2, 11, 20, hw=12) is None
    assert fetch(leader, 2, 12, 20, hw=12) is not None


def test_a_dead_broker_does_not_join() -> None:
    alive = {1}
    leader = leadership(isr=(1,), alive=alive)
    assert fetch(leader, 2, 10, 10, hw=10) is None
    alive.add(2)
    assert fetch(leader, 2, 10, 10, hw=10) is not None


def test_r13_the_high_watermark_stands_while_too_few_are_in_sync() -> None:
    leader = leadership(isr=(1,), min_isr=2)
    assert leader.is_under_min_isr
    assert leader.high_watermark(12, 0) == 10, "what former leaders wrote, and nothing since"
    fetch(leader, 2, 12, 12, hw=10)
    pending = leader.pending
    assert pending is not None
    assert leader.confirmed(pending, (1, 2), 5, 8)
    assert leader.high_watermark(12, 0) == 12


def test_r13_a_topic_is_not_asked_for_more_replicas_than_it_has() -> None:
    leader = Leadership(1, 0, 0, (1,), (1,), 0, 0, lag_time_max_ms=LAG_MS, min_isr=2)
    assert leader.high_watermark(4, 0) == 4


def test_r14_a_follower_that_never_reaches_the_end_leaves() -> None:
    leader = leadership(isr=(1, 2))
    end = 100
    for now in range(0, 3 * LAG_MS, 100):
        fetch(leader, 2, 10 + now // 100, end, now=now)
        end += 100
    assert leader.out_of_sync(end, 3 * LAG_MS) == [2]


def test_r14_a_follower_that_reaches_the_end_of_the_fetch_before_stays() -> None:
    leader = leadership(isr=(1, 2))
    end = 100
    for now in range(0, 3 * LAG_MS, 100):
        fetch(leader, 2, end - 100, end, now=now)
        end += 100
    assert leader.out_of_sync(end, 3 * LAG_MS) == []


def test_a_silent_follower_at_the_end_stays_while_nothing_is_written() -> None:
    leader = leadership(isr=(1, 2))
    fetch(leader, 2, 10, 10)
    assert leader.shrink(10, 100 * LAG_MS) is None
    assert leader.shrink(11, 100 * LAG_MS) is not None


def test_a_follower_that_keeps_up_is_waited_for_although_it_is_not_in_sync() -> None:
    leader = leadership(isr=(1,), epoch_start=0, alive={1, 2})
    fetch(leader, 2, 5, 5, hw=9)  # at the end it was, but below a high watermark it had not reached
    assert leader.pending is None
    assert leader.high_watermark(8, 10) == 5
    assert leader.high_watermark(8, 2 * LAG_MS) == 8


def test_one_change_at_a_time_and_answers_only_count_for_their_question() -> None:
    leader = leadership(isr=(1,))
    first = fetch(leader, 2, 10, 10, hw=10)
    assert first is not None
    assert fetch(leader, 3, 10, 10, hw=10) is None
    assert leader.ordered((1, 2, 3), (1, 2), 9, 0)
    assert not leader.confirmed(first, (1, 2), 5, 8)
    assert leader.partition_epoch == 9
    assert fetch(leader, 3, 10, 10, hw=10) is not None


def test_c05_a_stale_version_waits_for_the_controller_and_an_ineligible_replica_is_forgotten() -> None:
    leader = leadership(isr=(1,))
    proposal = fetch(leader, 2, 10, 10, hw=10)
    assert proposal is not None
    assert not leader.refused(proposal, ErrorCode.INVALID_UPDATE_VERSION)
    assert leader.pending is proposal
    assert leader.maximal_isr == {1, 2}
    assert leader.refused(proposal, ErrorCode.NOT_CONTROLLER)
    assert not leader.refused(proposal, ErrorCode.INELIGIBLE_REPLICA)
    assert leader.pending is None
    assert leader.maximal_isr == {1}


def test_an_older_order_changes_nothing() -> None:
    leader = leadership()
    assert not leader.ordered((1, 2), (1,), 6, 0)
    assert leader.isr == (1, 2, 3)


def test_l10_the_low_watermark_waits_for_living_replicas_only() -> None:
    alive = {1, 2}
    leader = leadership(alive=alive)
    leader.follower_fetched(2, 10, 4, 10, 0, 0)
    leader.follower_fetched(3, 10, 0, 10, 0, 0)
    assert leader.low_watermark(8) == 4


def test_c03_a_fetch_of_a_former_life_counts_for_nothing() -> None:
    """KIP-841, KIP-903: a follower that was restarted with an empty log is not in sync by what it had before."""
    leader = leadership(isr=(1, 2))
    fetch(leader, 2, 100, 100)
    assert leader.follower_fetched(3, 40, 0, 100, 100, 0, broker_epoch=70) is None
    assert leader.follower_fetched(3, 0, 0, 100, 100, 10, broker_epoch=80) is None
    late = leader.follower_fetched(3, 100, 0, 100, 100, 20, broker_epoch=70)
    assert late is None
    follower = leader.followers[3]
    assert (follower.log_end_offset, follower.caught_up_ms, follower.broker_epoch) == (0, None, 80)
    proposal = leader.follower_fetched(3, 100, 0, 100, 100, 30, broker_epoch=80)
    assert proposal is not None
    assert proposal.broker_epochs == (-1, -1, 80)


def test_c03_another_life_has_not_caught_up_by_what_the_former_one_fetched() -> None:
    leader = leadership(isr=(1, 2))
    leader.follower_fetched(3, 50, 0, 50, 50, 0, broker_epoch=70)
    leader.refused(leader.pending or _none(), ErrorCode.INELIGIBLE_REPLICA)
    leader.follower_fetched(3, 50, 0, 60, 60, 10, broker_epoch=80)
    assert leader.followers[3].caught_up_ms is None


def test_c04_a_follower_without_a_session_is_who_it_was() -> None:
    """Its epoch is known to be over by the controller, if it is: not by -1, which is never refused."""
    leader = leadership(isr=(1, 2))
    leader.follower_fetched(3, 40, 0, 100, 100, 0, broker_epoch=70)
    proposal = leader.follower_fetched(3, 100, 0, 100, 100, 10, broker_epoch=-1)
    assert proposal is not None
    assert proposal.broker_epochs == (-1, -1, 70)


def _none() -> IsrProposal:
    raise AssertionError("nothing was proposed")
