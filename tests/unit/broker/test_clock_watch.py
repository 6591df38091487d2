"""A clock that jumps: it is said in one line, and nothing is thrown away by it."""

from __future__ import annotations

import pytest

from ottla.broker.clock_watch import ClockWatch

MINUTE_MS, HOUR_MS, YEAR_MS = 60_000, 3_600_000, 365 * 86_400_000


class Hands:
    """A clock in the hands of the test."""

    def __init__(self) -> None:
        self.wall_ms = 1_700_000_000_000
        self.counted_s = 50.0

    def now_ms(self) -> int:
        return self.wall_ms

    def monotonic(self) -> float:
        return self.counted_s

    def pass_ms(self, count: int, jump_ms: int = 0) -> None:
        self.counted_s += count / 1000
        self.wall_ms += count + jump_ms


@pytest.fixture
def hands() -> Hands:
    return Hands()


def test_a_clock_that_goes_is_believed(hands: Hands, caplog: pytest.LogCaptureFixture) -> None:
    watch = ClockWatch(hands)
    for drift_ms in (0, 500, -500, 30_000, 30_000, 30_000):
        hands.pass_ms(5 * MINUTE_MS, drift_ms)
        assert watch.now_ms() == hands.wall_ms
    assert not caplog.messages


def test_a_jump_ahead_is_said_once_and_held_against_it_for_an_hour(hands: Hands, caplog: pytest.LogCaptureFixture) -> None:
    watch = ClockWatch(hands)
    hands.pass_ms(1000, YEAR_MS)
    assert watch.now_ms() == hands.wall_ms - YEAR_MS
    for _ in range(11):
        hands.pass_ms(5 * MINUTE_MS)
        assert watch.now_ms() == hands.wall_ms - YEAR_MS, "as if it had not jumped"
    assert len(caplog.messages) == 1
    assert "jumped ahead by 31536000 s" in caplog.text
    hands.pass_ms(6 * MINUTE_MS)
    assert watch.now_ms() == hands.wall_ms, "whoever leaves it so means it"
    hands.pass_ms(HOUR_MS)
    assert watch.now_ms() == hands.wall_ms


def test_a_clock_that_is_put_right_is_believed_at_once(hands: Hands, caplog: pytest.LogCaptureFixture) -> None:
    watch = ClockWatch(hands)
    hands.pass_ms(1000, YEAR_MS)
    assert watch.now_ms() == hands.wall_ms - YEAR_MS
    hands.pass_ms(1000, -YEAR_MS)
    assert watch.now_ms() == hands.wall_ms
    assert ["ahead" in message for message in caplog.messages] == [True, False]


def test_a_jump_back_is_said_and_nothing_is_held_up(hands: Hands, caplog: pytest.LogCaptureFixture) -> None:
    watch = ClockWatch(hands)
    hands.pass_ms(1000, -YEAR_MS)
    assert watch.now_ms() == hands.wall_ms
    assert "jumped back by 31536000 s" in caplog.text
    hands.pass_ms(1000, YEAR_MS)
    assert watch.now_ms() == hands.wall_ms - YEAR_MS, "for all we know the other one was right"
