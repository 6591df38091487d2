"""Percentiles of `ottla perf`."""

from __future__ import annotations

from ottla.cli.perf import MB, SAMPLES_MAX, Latencies, payloads, rates


def test_quantiles_of_a_thousand() -> None:
    latencies = Latencies()
    for milliseconds in range(1000):
        latencies.add(milliseconds / 1000)
    assert latencies.summary_ms() == {"avg": 499.5, "p50": 500.0, "p95": 950.0, "p99": 990.0, "p99.9": 999.0, "max": 999.0}


def test_memory_is_bounded_and_max_exact() -> None:
    latencies = Latencies(expected=SAMPLES_MAX * 4)
    for index in range(1000):
        latencies.add(5.0 if index == 1 else 1.0)
    assert len(latencies._samples) == 250
    assert latencies.max_s == 5.0
    assert latencies.count == 1000


def test_nothing_measured_says_nothing() -> None:
    assert Latencies().summary_ms() == {}


def test_a_megabyte_is_kafkas() -> None:
    assert rates(10, 5 * MB, 2.0) == {"records": 10, "mb": 5.0, "seconds": 2.0, "records_per_s": 5.0, "mb_per_s": 2.5}


def test_payloads_have_the_size_and_are_letters() -> None:
    assert {len(payload) for payload in payloads(17)} == {17}
    assert all(payload.isalpha() and payload.isupper() for payload in payloads(17))
    assert payloads(17) == payloads(17)
