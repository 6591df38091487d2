"""Distributions of durations and sizes: counts in fixed buckets, exact for ever, and quantiles of the last minutes.

Kafka's histograms keep a sample that favours the last five minutes. Here a rotation every `ROTATION_S` keeps two copies of the
counts: quantiles are those of the time since the older copy. Without a value in that time they are 0.
"""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mypy_extensions import i64

ROTATION_S: Final = 120
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those of Kafka's histograms."""

_BITS: Final = 40

_MANTISSAS: Final = ("1", "1.25", "1.5", "2", "2.5", "3", "4", "5", "6", "8")

TIME_BOUNDS_S: Final = [float(f"{mantissa}e{decade}") for decade in range(-6, 2) for mantissa in _MANTISSAS] + [100.0]
SIZE_BOUNDS_BYTES: Final = [float(half << exponent) for exponent in range(5, 27) for half in (2, 3)]


class Histogram:
    def __init__(self, bounds: list[float]) -> None:
        """`bounds`: the largest value of each bucket, ascending; larger values have a bucket of their own."""
        self.bounds = bounds
        self._scale = max(1.0, 1 / bounds[0])
        self._starts = [bisect_left(bounds, (1 << bits >> 1) / self._scale) for bits in range(_BITS + 1)]
        """By the number of bits of a scaled value: the first bucket that it may belong to."""
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0
        self._copy = list(self.counts)
        self._older_copy = self._copy

    def add(self, value: float) -> None:
        # As bisect_left(bounds, value), without a call out of compiled code.
        rest: i64 = int(value * self._scale)
        bits: i64 = 0
        while rest > 0 and bits < _BITS:
            rest >>= 1
            bits += 1
        bounds = self.bounds
        end: i64 = len(bounds)
        index: i64 = self._starts[bits]
        while index < end and value > bounds[index]:
            index += 1
        self.counts[index] += 1
        self.sum += value

    def rotate(self) -> None:
        """Called every ROTATION_S."""
        self._older_copy = self._copy
        self._copy = list(self.counts)

    @property
    def count(self) -> int:
        return sum(self.counts)

    def recent(self) -> list[int]:
        """The counts of the last ROTATION_S to twice as long."""
        return [now - before for now, before in zip(self.counts, self._older_copy, strict=True)]


def added(counts: list[list[int]], bounds: list[float]) -> list[int]:
    """The counts of several histograms with the same bounds as one."""
    if len(counts) == 1:
        return counts[0]
    return [sum(column) for column in zip(*counts, strict=True)] if counts else [0] * (len(bounds) + 1)


def quantiles(counts: list[int], bounds: list[float], zeros: int = 0) -> list[float]:
    """The QUANTILES of values counted in buckets, and of `zeros` values that are 0. Within a bucket values are taken as evenly
    spread; above the last bound they count as that bound."""
    total = sum(counts) + zeros
    if total == 0:
        return [0.0] * len(QUANTILES)
    found: list[float] = []
    index, below = 0, zeros
    for quantile in QUANTILES:
        rank = quantile * total
        if rank <= zeros:
            found.append(0.0)
            continue
        while below + counts[index] < rank:
            below += counts[index]
            index += 1
        found.append(_within(counts, bounds, index, rank - below))
    return found


def _within(counts: list[int], bounds: list[float], index: int, rank: float) -> float:
    if index == len(bounds):
        return bounds[-1]
    low = bounds[index - 1] if index else 0.0
    return low + (bounds[index] - low) * rank / counts[index]
