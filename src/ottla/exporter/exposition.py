"""One page of metrics, as text for Prometheus.

Most lines of a page have the labels of many others, and making these texts costs more than the values. So rows come with their
labels as text, made once for all metrics with the same labels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TypeVar

from ottla.metrics.exposition import exposition
from ottla.metrics.family import Family, Kind, Metric, label_text

T = TypeVar("T")

Value = float | int


def gauge(name: str, help: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, Kind.GAUGE, labels, help)


def counter(name: str, help: str, labels: tuple[str, ...] = ()) -> Metric:
    return Metric(name, Kind.COUNTER, labels, help)


class Page:
    """Collects the metrics of one page, each once."""

    def __init__(self) -> None:
        self._families: list[Family] = []

    def add(self, metric: Metric, rows: Iterable[tuple[Sequence[object], Value | None]]) -> None:
        """Rows of (values of the labels, value)."""
        self.add_labelled(metric, ((label_text(metric.labels, values), value) for values, value in rows), lambda value: value)

    def add_labelled(self, metric: Metric, rows: Iterable[tuple[str, T]], value: Callable[[T], Value | None]) -> None:
        """Rows of (labels as text, what `value` takes the value from). None: no sample. Nothing is written without samples."""
        samples = [(labels, found) for labels, each in rows if (found := value(each)) is not None]
        self._families.append(Family(metric.name, metric.kind.value, metric.help, samples))

    def text(self) -> str:
        return "".join(exposition(self._families))
