"""A metric and its samples.

`Metric` is a row of `table`. A collector returns a `Family` for each metric it has values of: samples are (what follows the name,
value), made while they are written. Labels are text that a collector may keep: making it costs more than the value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

from ottla.metrics.histogram import QUANTILES, quantiles

Sample = tuple[str, float]
"""(suffix and labels, value): `('{topic="t"}', 7)`."""


class Kind(Enum):
    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"
    QUANTILES = "quantiles"
    """As the JMX exporter shows Kafka's histograms: a gauge with the label `quantile`, and a counter NAME_count."""


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: Kind
    labels: tuple[str, ...]
    help: str


@dataclass(slots=True)
class Family:
    name: str
    type: str
    """counter, gauge or histogram."""
    help: str
    samples: Iterable[Sample]


PAUSE = Family("", "", "", ())
"""Has no samples: a collector that looks at many things yields it from time to time, so that the scrape can pause there."""

Collector = Callable[[], Iterable[Family]]
"""What a part can tell now. A name may come from one collector only."""


def label_text(names: Sequence[str], values: Sequence[object]) -> str:
    """The labels of a sample as text, with braces; empty without names."""
    if not names:
        return ""
    return "{" + ",".join(f'{name}="{escaped(str(value))}"' for name, value in zip(names, values, strict=True)) + "}"


def escaped(text: str) -> str:
    if "\\" in text or '"' in text or "\n" in text:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return text


def family(metric: Metric, samples: Iterable[tuple[Sequence[object], float]]) -> Family:
    """A counter or gauge, of (values of its labels, value)."""
    assert metric.kind in (Kind.COUNTER, Kind.GAUGE), metric.name
    return Family(metric.name, metric.kind.value, metric.help, ((label_text(metric.labels, at), value) for at, value in samples))


def single(metric: Metric, value: float) -> Family:
    """A counter or gauge without labels."""
    assert not metric.labels, metric.name
    return Family(metric.name, metric.kind.value, metric.help, [("", value)])


@dataclass(slots=True)
class Distribution:
    """The values of one series of a metric of kind QUANTILES or HISTOGRAM."""

    labels: tuple[object, ...]
    bounds: list[float]
    counts: list[int]
    """Since the start."""
    recent: list[int]
    sum: float
    zeros: int = 0
    """Further values, which are 0."""
    recent_zeros: int = 0


def quantile_families(metric: Metric, distributions: Sequence[Distribution], scale: float = 1.0) -> Iterator[Family]:
    """A metric of kind QUANTILES. `scale`: of the quantiles, 1000 for milliseconds out of seconds."""
    assert metric.kind is Kind.QUANTILES, metric.name
    yield Family(metric.name, "gauge", metric.help, _quantile_samples(metric, distributions, scale))
    yield Family(f"{metric.name}_count", "counter", f"Count of: {metric.help}", _count_samples(metric, distributions))


def _quantile_samples(metric: Metric, distributions: Sequence[Distribution], scale: float) -> Iterator[Sample]:
    for each in distributions:
        values = quantiles(each.recent, each.bounds, each.recent_zeros)
        for labels, value in zip(_quantile_labels(metric.labels, each.labels), values, strict=True):
            yield labels, round(value * scale, 6)


@lru_cache(maxsize=1024)
def _quantile_labels(names: tuple[str, ...], values: tuple[object, ...]) -> list[str]:
    texts = ["0.50" if quantile == 0.5 else str(quantile) for quantile in QUANTILES]
    return [label_text((*names, "quantile"), (*values, text)) for text in texts]


def _count_samples(metric: Metric, distributions: Sequence[Distribution]) -> Iterator[Sample]:
    for each in distributions:
        yield label_text(metric.labels, each.labels), sum(each.counts) + each.zeros


def histogram_family(metric: Metric, distributions: Sequence[Distribution], shown: Sequence[float]) -> Family:
    """A metric of kind HISTOGRAM. `shown`: the bounds that get a bucket, some of those of the distributions."""
    assert metric.kind is Kind.HISTOGRAM, metric.name
    return Family(metric.name, "histogram", metric.help, _bucket_samples(metric, distributions, shown))


def _bucket_samples(metric: Metric, distributions: Sequence[Distribution], shown: Sequence[float]) -> Iterator[Sample]:
    names = (*metric.labels, "le")
    for each in distributions:
        below, done = each.zeros, 0
        for bound in shown:
            end = each.bounds.index(bound) + 1
            below += sum(each.counts[done:end])
            done = end
            yield "_bucket" + label_text(names, (*each.labels, bound)), below
        below += sum(each.counts[done:])
        yield "_bucket" + label_text(names, (*each.labels, "+Inf")), below
        labels = label_text(metric.labels, each.labels)
        yield f"_sum{labels}", each.sum
        yield f"_count{labels}", below
