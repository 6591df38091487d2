"""EndToEndLatency: what it measures, and that its memory does not grow (F73)."""

from __future__ import annotations

import math
import random

import pytest
from confluent_kafka import Message

from ottla.client.interceptors import ProducerRecord
from ottla.client.latency import HEADER, EndToEndLatency, Histogram


def arrived(headers: object = None, timestamp: tuple[int, int] = (1, 1_000), topic: str = "t") -> Message:
    return Message(topic=topic, partition=0, offset=0, value=b"v", headers=headers, timestamp=timestamp)  # type: ignore[arg-type]


class Clock:
    now_us = 5_000_000

    def __call__(self) -> int:
        return self.now_us


@pytest.mark.parametrize("spread", [10, 1_000, 1_000_000, 10**10])
def test_quantiles_are_within_their_promise(spread: int) -> None:
    chance = random.Random(spread)
    values = [chance.randrange(spread) for _ in range(5_000)]
    histogram = Histogram()
    for value in values:
        histogram.add(value)
    ordered = sorted(values)
    for share in (0.5, 0.95, 0.99, 1.0):
        true = ordered[math.ceil(share * len(ordered)) - 1]
        assert true <= histogram.quantile_us(share) <= true * (1 + 1 / 64)
    assert (histogram.count, histogram.max_us, histogram.total_us) == (5_000, max(values), sum(values))


def test_every_value_is_counted_in_a_step_that_holds_it() -> None:
    for value in [*range(1_000), *(2**power + delta for power in range(10, 40) for delta in (-1, 0, 1))]:
        histogram = Histogram()
        histogram.add(0)
        histogram.add(value)
        assert histogram.quantile_us(1.0) == value


def test_memory_does_not_grow_with_records_nor_with_their_latency() -> None:
    histogram = Histogram()
    before = len(histogram._counts)
    for power in range(60):
        histogram.add(2**power)
    assert len(histogram._counts) == before < 2_500
    assert histogram.quantile_us(1.0) == 2**40 - 1, "more than twelve days is counted as twelve days"
    assert histogram.max_us == 2**59


def test_from_the_header_put_on_at_sending() -> None:
    clock = Clock()
    latency = EndToEndLatency(now_us=clock)
    record = latency.before_send(ProducerRecord("t", None))
    assert record.headers == ((HEADER, (5_000_000).to_bytes(8, "big")),)
    assert latency.before_send(record) is record, "a record passed on keeps its first time"
    clock.now_us += 2_500
    messages = [arrived(list(record.headers)), arrived(list(record.headers), topic="u")]
    assert latency.before_handover(messages) == messages
    figures = latency.figures()
    assert list(figures) == ["t", "u"]
    assert (figures["t"].count, figures["t"].max_ms, figures["t"].p50_ms, figures["t"].mean_ms) == (1, 2.5, 2.5, 2.5)
    latency.reset()
    assert latency.figures() == {}


def test_without_a_header_the_records_timestamp_is_taken() -> None:
    clock = Clock()
    latency = EndToEndLatency(header=None, now_us=clock)
    assert latency.before_send(ProducerRecord("t")) == ProducerRecord("t")
    latency.before_handover([arrived(None, (1, 4_000)), arrived([(HEADER, bytes(8))], (2, 4_900))])
    assert latency.figures()["t"].max_ms == 1_000
    assert latency.figures()["t"].p50_ms == pytest.approx(100, rel=0.02)


@pytest.mark.parametrize("headers", [None, [], [(HEADER, None)], [(HEADER, b"short")], [("other", b"12345678")]])
def test_headers_that_say_nothing_fall_back_to_the_timestamp(headers: object) -> None:
    latency = EndToEndLatency(now_us=Clock())
    latency.before_handover([arrived(headers, (1, 4_990))])
    assert latency.figures()["t"].max_ms == 10


def test_a_record_without_any_time_is_not_measured() -> None:
    latency = EndToEndLatency(now_us=Clock())
    latency.before_handover([arrived(None, (0, 0))])
    assert latency.figures() == {}


def test_clocks_that_disagree_are_told() -> None:
    latency = EndToEndLatency(now_us=Clock())
    latency.before_handover([arrived(None, (1, 5_100)), arrived(None, (1, 4_900))])
    assert (latency.figures()["t"].clock_skew, latency.figures()["t"].count) == (1, 2)
    assert latency.figures()["t"].p50_ms == 0
