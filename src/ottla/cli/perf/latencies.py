"""Latencies of many records in bounded memory.

Like Kafka's own performance tool it keeps at most 500,000 evenly spaced samples, and the exact count, sum and maximum.
"""

from __future__ import annotations

from array import array

SAMPLES_MAX = 500_000
QUANTILES = {"p50": 0.5, "p95": 0.95, "p99": 0.99, "p99.9": 0.999}


class Latencies:
    def __init__(self, expected: int | None = None) -> None:
        self._every = max(1, -(-(expected or 0) // SAMPLES_MAX))
        self._samples = array("d")
        self.count = 0
        self.total_s = 0.0
        self.max_s = 0.0

    def add(self, seconds: float) -> None:
        if self.count % self._every == 0:
            self._samples.append(seconds)
        self.count += 1
        self.total_s += seconds
        if seconds > self.max_s:
            self.max_s = seconds

    def summary_ms(self) -> dict[str, float]:
        """Average, quantiles and maximum in milliseconds."""

        if not self.count:
            return {}
        ordered = sorted(self._samples)
        found = {name: ordered[min(len(ordered) - 1, int(q * len(ordered)))] for name, q in QUANTILES.items()}
        values = {"avg": self.total_s / self.count, **found, "max": self.max_s}
        return {name: round(seconds * 1000, 3) for name, seconds in values.items()}
