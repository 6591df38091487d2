"""Quantiles are those of the last minutes, counts those since the start."""

from __future__ import annotations

import random
from bisect import bisect_left

from ottla.metrics.histogram import QUANTILES, SIZE_BOUNDS_BYTES, TIME_BOUNDS_S, Histogram, added, quantiles


def test_quantiles_are_within_a_bucket_of_the_truth() -> None:
    chance = random.Random(7)
    values = sorted(chance.lognormvariate(-7, 1.5) for _ in range(20_000))
    histogram = Histogram(TIME_BOUNDS_S)
    for value in values:
        histogram.add(value)
    for quantile, found in zip(QUANTILES, quantiles(histogram.counts, histogram.bounds), strict=True):
        truth = values[int(quantile * len(values)) - 1]
        assert truth * 0.8 <= found <= truth * 1.25
    assert histogram.count == len(values)
    assert abs(histogram.sum - sum(values)) < 1e-6


def test_every_value_is_in_its_bucket() -> None:
    chance = random.Random(8)
    for bounds in (TIME_BOUNDS_S, SIZE_BOUNDS_BYTES, [1.0, 2.0, 4.0], [0.1]):
        values = [*bounds, *(bound * 1.0001 for bound in bounds), *(bound * 0.9999 for bound in bounds), 0.0, 1e12]
        values += [chance.uniform(0, bound) for bound in bounds]
        for value in values:
            histogram = Histogram(bounds)
            histogram.add(value)
            assert histogram.counts.index(1) == bisect_left(bounds, value), (value, bounds)


def test_old_values_leave_the_quantiles_and_stay_in_the_counts() -> None:
    histogram = Histogram([1.0, 2.0, 4.0])
    histogram.add(3.0)
    histogram.rotate()
    histogram.add(0.5)
    assert histogram.recent() == [1, 0, 1, 0]
    histogram.rotate()
    assert histogram.recent() == [1, 0, 0, 0]
    histogram.rotate()
    assert histogram.recent() == [0, 0, 0, 0]
    assert quantiles(histogram.recent(), histogram.bounds) == [0.0] * len(QUANTILES)
    assert histogram.counts == [1, 0, 1, 0]


def test_values_above_the_last_bound_and_zeros_count() -> None:
    histogram = Histogram([1.0, 2.0])
    histogram.add(100.0)
    found = quantiles(histogram.counts, histogram.bounds, zeros=9)
    assert found[:2] == [0.0, 0.0]
    assert found[-1] == 2.0
    assert added([histogram.counts, histogram.counts], histogram.bounds) == [0, 0, 2]
    assert added([], histogram.bounds) == [0, 0, 0]
