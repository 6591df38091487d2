"""Distributions of durations and sizes: counts in fixed buckets, exact for ever, and quantiles of the last minutes.

Kafka's histograms keep a sample that favours the last five minutes. Here a rotation every `ROTATION_S` keeps two copies of the
counts: quantiles are those of the time since the older copy. Without a value in that time they are 0.
"""

from __future__ import annotations

from bisect import bisect_left
from functools import lru_cache
from typing import Final

from librt.vecs import vec
from mypy_extensions import i64

ROTATION_S: Final = 120
QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""Those of Kafka's histograms."""

_CELLS: Final = 1024
_LEVELS: Final = 4
_LAST_LEVEL: Final = (_LEVELS - 1) * _CELLS
_DOWN: Final = 1 - 1e-12
"""A value that is a bound belongs to the bucket below it, however floating point rounds."""

_MANTISSAS: Final = ("1", "1.25", "1.5", "2", "2.5", "3", "4", "5", "6", "8")

TIME_BOUNDS_S: Final = [float(f"{mantissa}e{decade}") for decade in range(-6, 2) for mantissa in _MANTISSAS] + [100.0]
SIZE_BOUNDS_BYTES: Final = [float(half << exponent) for exponent in range(5, 27) for half in (2, 3)]


@lru_cache
def _buckets(bounds: tuple[float, ...]) -> tuple[bytes, float]:
    """The bucket of each cell, and how many cells of a level are one cell of the next level. The smallest cell is a quarter of
    the first bound. No bound is within a cell: for bounds in steps of tens that takes 100 cells, in steps of twos 128."""
    cells_per_cell = next(count for count in (100.0, 128.0) if _splits_no_cell(bounds, count))
    found = bytearray()
    cell = bounds[0] / 4
    for _ in range(_LEVELS):
        found += bytes([bisect_left(bounds, (number + 0.5) * cell) for number in range(_CELLS)])
        cell *= cells_per_cell
    return bytes(found), cells_per_cell


def _splits_no_cell(bounds: tuple[float, ...], cells_per_cell: float) -> bool:
    for bound in bounds:
        cells = bound / bounds[0] * 4
        while cells > _CELLS:
            cells /= cells_per_cell
        if abs(cells - round(cells)) > 1e-6:
            return False
    return True


class Histogram:
    """Compiled code adds a value without a call and without making an object."""

    def __init__(self, bounds: list[float]) -> None:
        """`bounds`: the largest value of each bucket, ascending; larger values have a bucket of their own."""
        self.bounds = bounds
        self._cells_per_unit = 4 / bounds[0] * _DOWN
        self._buckets, self._cells_per_cell = _buckets(tuple(bounds))
        self._counts: vec[i64] = vec[i64]([0] * (len(bounds) + 1))
        self.sum = 0.0
        self._copy = self.counts
        self._older_copy = self._copy

    def add(self, value: float) -> None:
        # As bisect_left(bounds, value).
        cells = value * self._cells_per_unit
        cell: i64 = 0
        while cells >= _CELLS and cell < _LAST_LEVEL:
            cells /= self._cells_per_cell
            cell += _CELLS
        if cells < _CELLS:
            cell += int(cells)
        else:
            cell += _CELLS - 1
        index: i64 = self._buckets[cell]
        counts = self._counts
        counts[index] = counts[index] + 1
        self.sum += value

    def rotate(self) -> None:
        """Called every ROTATION_S."""
        self._older_copy = self._copy
        self._copy = self.counts

    @property
    def counts(self) -> list[int]:
        """The count of each bucket."""
        return list(self._counts)

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
