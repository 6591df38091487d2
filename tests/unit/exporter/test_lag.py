"""Lag in seconds from samples of log ends."""

from __future__ import annotations

import pytest

from ottla.exporter.lag import SAMPLES_MAX, WINDOW_S, LogEnds


def samples(*points: tuple[float, int]) -> LogEnds:
    ends = LogEnds()
    for time_s, end in points:
        ends.add(time_s, end)
    return ends


def test_a_group_at_the_end_has_no_lag() -> None:
    assert samples((0, 100)).lag_s(100, 50) == 0
    assert samples((0, 100)).lag_s(101, 50) == 0, "the group committed after the sample"


def test_lag_is_the_age_of_the_next_record() -> None:
    steady = samples((0, 0), (10, 100), (20, 200))
    assert steady.lag_s(150, 20) == 5
    assert steady.lag_s(50, 20) == 15
    assert steady.lag_s(50, 25) == 20, "it ages while nothing is read"


def test_records_produced_after_a_pause_are_not_as_old_as_the_pause() -> None:
    paused = samples((0, 100), (600, 100), (610, 200))
    assert paused.lag_s(100, 610) == 10


def test_a_record_older_than_the_samples_is_extrapolated() -> None:
    assert samples((100, 1000), (110, 1100)).lag_s(500, 110) == 60


def test_without_growth_the_lag_is_at_least_the_age_of_the_samples() -> None:
    still = samples((100, 1000), (160, 1000))
    assert still.lag_s(999, 160) == 60
    assert still.lag_s(0, 160) == 60


def test_without_samples_nothing_is_known() -> None:
    assert LogEnds().lag_s(0, 1) is None


def test_a_topic_created_anew_starts_anew() -> None:
    again = samples((0, 0), (10, 1000), (20, 5))
    assert len(again) == 1
    assert again.lag_s(5, 20) == 0
    assert again.lag_s(0, 30) == 10


def test_a_silent_partition_keeps_two_samples() -> None:
    silent = samples(*((time_s, 7) for time_s in range(1000)))
    assert len(silent) == 2
    assert silent.lag_s(6, 999) == 999


def test_samples_are_bounded_and_the_newest_are_kept() -> None:
    busy = samples(*((time_s, time_s * 10) for time_s in range(3000)))
    assert len(busy) <= SAMPLES_MAX
    assert busy.lag_s(29_900, 2999) == pytest.approx(9)
    assert busy.lag_s(100, 2999) == pytest.approx(2989), "the line goes through what was dropped"


def test_samples_older_than_the_window_go() -> None:
    old = samples((0, 0), (10, 1000), (WINDOW_S * 2, 1100), (WINDOW_S * 2 + 100, 1200))
    assert old.lag_s(1050, WINDOW_S * 2 + 100) == pytest.approx(WINDOW_S + 95), "from the last sample before the window"
