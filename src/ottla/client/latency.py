"""`EndToEndLatency`: the time from send to receive of each record, per topic, in bounded memory.

An interceptor for producers and consumers; one object may serve both. The producer adds the send time as a header, the consumer
measures. Both use wall clocks: the difference between two machines is part of the figure. A negative time counts as zero and in
`clock_skew`.
"""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ottla.client.interceptors import Interceptor, ProducerRecord

if TYPE_CHECKING:
    from confluent_kafka import Message

HEADER = "ottla-sent-us"
"""Eight bytes, big endian: microseconds since 1970."""

_PARTS_BITS = 6
_LARGEST_US = (1 << 40) - 1  # twelve days


class Histogram:
    """A histogram with 64 buckets per power of two: a quantile is at most 1.6 % too high. 18 KB."""

    __slots__ = ("_counts", "count", "max_us", "total_us")

    def __init__(self) -> None:
        self._counts = array("Q", bytes(8 * (self._index(_LARGEST_US) + 1)))
        self.count = 0
        self.total_us = 0
        self.max_us = 0

    @staticmethod
    def _index(value_us: int) -> int:
        shift = max(0, value_us.bit_length() - _PARTS_BITS - 1)
        return (shift << _PARTS_BITS) + (value_us >> shift)

    @staticmethod
    def _upper(index: int) -> int:
        """The largest value of a bucket."""
        shift = max(0, (index >> _PARTS_BITS) - 1)
        return (((index - (shift << _PARTS_BITS)) + 1) << shift) - 1

    def add(self, value_us: int) -> None:
        self._counts[self._index(min(value_us, _LARGEST_US))] += 1
        self.count += 1
        self.total_us += value_us
        self.max_us = max(self.max_us, value_us)

    def quantile_us(self, share: float) -> int:
        """The upper bound of the bucket of a quantile."""
        wanted = max(1, math.ceil(share * self.count))
        seen = 0
        for index, count in enumerate(self._counts):
            seen += count
            if seen >= wanted:
                return min(self._upper(index), self.max_us)
        return self.max_us


@dataclass(frozen=True, slots=True)
class Figures:
    count: int
    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    max_ms: float
    clock_skew: int
    """How many records arrived before they were sent, by the two clocks."""


class EndToEndLatency(Interceptor):
    """`header=None` puts nothing into records and takes their timestamps (milliseconds, by whatever clock the topic says)."""

    def __init__(self, *, header: str | None = HEADER, now_us: Callable[[], int] = lambda: time.time_ns() // 1000) -> None:
        self._header = header
        self._now_us = now_us
        self._topics: dict[str, Histogram] = {}
        self._skewed: dict[str, int] = {}

    def before_send(self, record: ProducerRecord) -> ProducerRecord:
        # One that is there already stays: a record that is passed on keeps the time of its first sending.
        if self._header is None or record.header(self._header) is not None:
            return record
        return record.with_header(self._header, self._now_us().to_bytes(8, "big"))

    def before_handover(self, messages: list[Message]) -> list[Message]:
        now_us = self._now_us()
        for message in messages:
            sent_us = self._sent_us(message)
            if sent_us is not None:
                self._add(message.topic() or "", now_us - sent_us)
        return messages

    def _sent_us(self, message: Message) -> int | None:
        if self._header is not None:
            headers = message.headers() or []
            pairs = headers.items() if isinstance(headers, dict) else headers
            found = next((value for name, value in reversed(list(pairs)) if name == self._header), None)
            if isinstance(found, bytes) and len(found) == 8:
                return int.from_bytes(found, "big")
        kind, timestamp_ms = message.timestamp()
        return timestamp_ms * 1000 if kind else None

    def _add(self, topic: str, taken_us: int) -> None:
        histogram = self._topics.get(topic)
        if histogram is None:
            histogram = self._topics[topic] = Histogram()
        if taken_us < 0:
            self._skewed[topic] = self._skewed.get(topic, 0) + 1
        histogram.add(max(0, taken_us))

    def figures(self) -> dict[str, Figures]:
        """By topic, since the start or the last `reset`."""
        return {
            topic: Figures(
                count=histogram.count,
                mean_ms=histogram.total_us / histogram.count / 1000,
                p50_ms=histogram.quantile_us(0.5) / 1000,
                p95_ms=histogram.quantile_us(0.95) / 1000,
                p99_ms=histogram.quantile_us(0.99) / 1000,
                max_ms=histogram.max_us / 1000,
                clock_skew=self._skewed.get(topic, 0),
            )
            for topic, histogram in sorted(self._topics.items())
        }

    def reset(self) -> None:
        self._topics.clear()
        self._skewed.clear()
