"""A rate follows what happens, as Kafka's one-minute rates do."""

from __future__ import annotations

from math import exp

import pytest

from ottla.metrics.rate import OneMinuteRate


def test_the_first_five_seconds_are_the_rate() -> None:
    rate = OneMinuteRate(100.0)
    for number in range(10):
        rate.add(100.0 + number / 10)
    assert rate.per_second(104.9) == 0
    assert rate.per_second(105.0) == pytest.approx(2.0)


def test_what_is_a_minute_old_weighs_a_third() -> None:
    rate = OneMinuteRate(0.0)
    for _ in range(50):
        rate.add(1.0)
    assert rate.per_second(65.0) == pytest.approx(10 * exp(-1))
    assert rate.per_second(10_000.0) < 1e-9


def test_new_events_take_over() -> None:
    rate = OneMinuteRate(0.0)
    for second in range(600):
        for _ in range(3):
            rate.add(second + 0.5)
    assert rate.per_second(600.0) == pytest.approx(3.0)
    for second in range(600, 660):
        rate.add(second + 0.5)
    assert rate.per_second(660.0) == pytest.approx(1 + 2 * exp(-1))
