"""Connection creation rates: `max.connection.creation.rate`, and `connection_creation_rate` of an address (KIP-612).

As in Kafka, a rate is measured over eleven samples of one second, and samples before the first connection count as empty: a burst
of ten seconds' worth passes, and then each connection is delayed until the rate is within the limit, by one second at most.
"""

from __future__ import annotations

from collections import deque
from typing import Final

UNLIMITED: Final = 2**31 - 1
SAMPLE_S: Final = 1.0
SAMPLES: Final = 11
DELAY_S_MAX: Final = 1.0


class ConnectionRate:
    __slots__ = ("_samples", "per_second")

    def __init__(self, per_second: int = UNLIMITED) -> None:
        self.per_second = per_second
        self._samples: deque[tuple[float, int]] = deque()
        """(start, connections), oldest first."""

    @property
    def is_empty(self) -> bool:
        return not self._samples

    def record(self, now: float) -> float:
        """Count a connection. Returns by how many seconds to delay it."""
        self.forget(now)
        samples = self._samples
        if samples and now - samples[-1][0] < SAMPLE_S:
            begin, before = samples[-1]
            samples[-1] = (begin, before + 1)
        else:
            samples.append((now, 1))
        if self.per_second >= UNLIMITED:
            return 0.0
        window_s = self._window_s(now)
        excess = sum(count for _, count in samples) - self.per_second * window_s
        if excess <= 0:
            return 0.0
        return min(excess / self.per_second, DELAY_S_MAX) if self.per_second else DELAY_S_MAX

    def take_back(self) -> None:
        """Uncount the last connection."""
        if self._samples:
            begin, before = self._samples.pop()
            if before > 1:
                self._samples.append((begin, before - 1))

    def forget(self, now: float) -> None:
        samples = self._samples
        while samples and now - samples[0][0] >= SAMPLE_S * SAMPLES:
            samples.popleft()

    def _window_s(self, now: float) -> float:
        elapsed = now - self._samples[0][0]
        missing = SAMPLES - 1 - int(elapsed / SAMPLE_S)
        return elapsed + missing * SAMPLE_S if missing > 0 else elapsed
