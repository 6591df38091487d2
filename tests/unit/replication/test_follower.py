"""Where a follower cuts its log (F53, R05-R07, R09), and its side of a fetch session."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field

from ottla.errors import ErrorCode
from ottla.replication.follower import FetchErrorAction, OutOfRange, Truncation, action_for, out_of_range, truncation
from ottla.replication.follower_session import FollowerSession
from ottla.types import OffsetAndEpoch


@dataclass
class FakeLog:
    """Epochs as (epoch, start), in order."""

    log_end_offset: int
    epochs: list[tuple[int, int]] = field(default_factory=list)
    high_watermark: int = 0

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1][0] if self.epochs else -1

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        if epoch == self.latest_epoch:
            return OffsetAndEpoch(self.log_end_offset, epoch)
        higher = bisect_right([known for known, _ in self.epochs], epoch)
        if higher == len(self.epochs):
            return OffsetAndEpoch(-1, -1)
        found = self.epochs[higher - 1][0] if higher else epoch
        return OffsetAndEpoch(self.epochs[higher][1], found)


def test_r05_what_the_leader_has_is_kept_whatever_the_high_watermark_says() -> None:
    log = FakeLog(2, [(0, 0)], high_watermark=1)
    assert truncation(log, 0, 2) == Truncation(2, True)


def test_r06_what_the_new_leader_wrote_over_goes() -> None:
    log = FakeLog(2, [(0, 0)], high_watermark=2)
    assert truncation(log, 0, 1) == Truncation(1, True)


def test_r07_an_epoch_the_follower_lacks_is_asked_for_again() -> None:
    follower = FakeLog(12, [(1, 0), (4, 10)])
    # The leader has 1 (0-8), 3 (8-11), 5 (11-): asked for 4 it answers (3, 11).
    first = truncation(follower, 3, 11)
    assert first == Truncation(10, False)
    follower = FakeLog(10, [(1, 0)])
    # Asked for 1 now, it answers (1, 8).
    assert truncation(follower, 1, 8) == Truncation(8, True)


def test_a_log_without_epochs_follows_the_leaders_offset() -> None:
    assert truncation(FakeLog(12), 2, 7) == Truncation(7, True)
    assert truncation(FakeLog(5), 2, 7) == Truncation(5, True)


def test_a_leader_that_knows_nothing_leaves_the_committed_part() -> None:
    assert truncation(FakeLog(12, [(1, 0)], high_watermark=9), -1, -1) == Truncation(9, True)


def test_r16_an_unclean_leader_with_a_shorter_log_cuts_the_follower() -> None:
    assert out_of_range(10, 0, 6) == OutOfRange(truncate_to=6)
    assert out_of_range(10, 20, 40) == OutOfRange(truncate_fully_and_start_at=20)
    assert out_of_range(10, 5, 40) == OutOfRange()


def test_r09_epoch_errors_never_cut() -> None:
    assert action_for(ErrorCode.UNKNOWN_LEADER_EPOCH) is FetchErrorAction.RETRY
    assert action_for(ErrorCode.FENCED_LEADER_EPOCH) is FetchErrorAction.FENCED
    assert action_for(ErrorCode.OFFSET_OUT_OF_RANGE) is FetchErrorAction.OUT_OF_RANGE


def test_a_session_names_what_changed() -> None:
    session: FollowerSession[str, int] = FollowerSession()
    full = session.request({"a": 1, "b": 1})
    assert (full.session_id, full.epoch, dict(full.wanted)) == (0, 0, {"a": 1, "b": 1})
    session.replied(77)
    second = session.request({"a": 2, "c": 1})
    assert (second.session_id, second.epoch) == (77, 1)
    assert dict(second.wanted) == {"a": 2, "c": 1}
    assert second.forgotten == ["b"]
    session.replied(77)
    assert dict(session.request({"a": 2, "c": 1}).wanted) == {}
    session.failed()
    again = session.request({"a": 2, "c": 1})
    assert (again.session_id, again.epoch, dict(again.wanted)) == (0, 0, {"a": 2, "c": 1})
