"""Requests by API: number, errors, size, and time by stage."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from ottla.broker.monitoring.loop_watch import LoopWatch
from ottla.broker.network.measuring import FETCH_CONSUMER, FETCH_FOLLOWER, Measuring, RequestStatistics
from ottla.errors import ErrorCode
from ottla.metrics.family import Distribution, Family, family, histogram_family, quantile_families
from ottla.metrics.histogram import SIZE_BOUNDS_BYTES, TIME_BOUNDS_S, Histogram, added
from ottla.metrics.table import METRICS, REQUESTS

SHOWN_S: Final = [bound for bound in TIME_BOUNDS_S if 1e-4 <= bound <= 60 and f"{bound:e}"[:4] in ("1.00", "2.50", "5.00")]
SHOWN_BYTES: Final = [bound for bound in SIZE_BOUNDS_BYTES if f"{int(bound):b}".count("1") == 1][::2]
_FETCH: Final = "Fetch"

Stage = Callable[[RequestStatistics], list[Histogram]]
"""The histograms that have values of a stage. For requests in none of them it took no time."""

_STAGES: Final[dict[str, Stage]] = {
    "totaltimems": lambda each: [each.at_once_s, each.total_s],
    "localtimems": lambda each: [each.at_once_s, each.local_s],
    "remotetimems": lambda each: [each.remote_s],
    "responsequeuetimems": lambda each: [],
    "responsesendtimems": lambda each: [each.send_s],
    "throttletimems": lambda each: [each.throttle_s],
}


def request_families(measuring: Measuring, loop_watch: LoopWatch) -> Iterator[Family]:
    named = _named(measuring)
    yield family(METRICS[f"{REQUESTS}_requests_total"], _counts(named))
    yield family(METRICS[f"{REQUESTS}_errors_total"], _errors(named))
    for name, stage in _STAGES.items():
        yield from quantile_families(METRICS[f"{REQUESTS}_{name}"], [_times(label, each, stage) for label, each in named], 1000)
    waits = [_queued(label, each, loop_watch.lateness_s) for label, each in named]
    yield from quantile_families(METRICS[f"{REQUESTS}_requestqueuetimems"], waits, 1000)
    sizes = [_sizes(label, each) for label, each in named]
    yield from quantile_families(METRICS[f"{REQUESTS}_requestbytes"], sizes)
    nothing = [_times(label, each, lambda one: []) for label, each in named]
    yield from quantile_families(METRICS[f"{REQUESTS}_temporarymemorybytes"], nothing)
    # Without the sum of consumers and followers: a sum over all series would count them twice.
    totals = [_times(label, each, _STAGES["totaltimems"]) for label, each in named if label != _FETCH]
    yield histogram_family(METRICS["ottla_request_time_seconds"], totals, SHOWN_S)
    yield histogram_family(METRICS["ottla_request_size_bytes"], [size for size in sizes if size.labels != (_FETCH,)], SHOWN_BYTES)


Named = list[tuple[str, list[RequestStatistics]]]
"""The label `request`, and the statistics that are summed up under it."""


def _named(measuring: Measuring) -> Named:
    """As in Kafka, Fetch is also the sum of FetchConsumer and FetchFollower."""
    statistics = measuring.by_name
    named: Named = [(name, [each]) for name, each in sorted(statistics.items()) if _answered(each)]
    fetches = [each for name, each in statistics.items() if name in (FETCH_CONSUMER, FETCH_FOLLOWER) and _answered(each)]
    return [(_FETCH, fetches), *named] if fetches else named


def _answered(statistics: RequestStatistics) -> bool:
    return any(each.requests for each in statistics.by_version.values())


def _counts(named: Named) -> Iterator[tuple[tuple[str, str], int]]:
    for name, statistics in named:
        for version in sorted({version for each in statistics for version in each.by_version}):
            counts = [each.by_version[version].requests for each in statistics if version in each.by_version]
            if any(counts):
                yield (name, str(version)), sum(counts)


def _errors(named: Named) -> Iterator[tuple[tuple[str, str], int]]:
    for name, statistics in named:
        yield (name, "NONE"), sum(each.good for each in statistics)
        for code in sorted({code for each in statistics for code in each.failures}):
            yield (name, _error_name(code)), sum(each.failures.get(code, 0) for each in statistics)


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def _times(name: str, statistics: list[RequestStatistics], stage: Stage) -> Distribution:
    values = [histogram for each in statistics for histogram in stage(each)]
    requests = [histogram for each in statistics for histogram in (each.at_once_s, each.total_s)]
    found = _distribution(name, values, TIME_BOUNDS_S)
    found.zeros = max(0, sum(each.count for each in requests) - sum(found.counts))
    found.recent_zeros = max(0, sum(sum(each.recent()) for each in requests) - sum(found.recent))
    return found


def _sizes(name: str, statistics: list[RequestStatistics]) -> Distribution:
    return _distribution(name, [each.size_bytes for each in statistics], SIZE_BOUNDS_BYTES)


def _distribution(name: str, histograms: list[Histogram], bounds: list[float]) -> Distribution:
    counts = added([each.counts for each in histograms], bounds)
    recent = added([each.recent() for each in histograms], bounds)
    return Distribution((name,), bounds, counts, recent, sum(each.sum for each in histograms))


def _queued(name: str, statistics: list[RequestStatistics], lateness_s: Histogram) -> Distribution:
    """Every request waits for the loop as any other event does."""
    answered = sum(each.at_once_s.count + each.total_s.count for each in statistics)
    return Distribution((name,), lateness_s.bounds, [], lateness_s.recent(), 0.0, zeros=answered)
