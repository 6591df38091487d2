"""The replication quota (KIP-73): a limit on the bytes per second to or from throttled replicas that are out of sync.

Times are monotonic milliseconds.
"""

from __future__ import annotations

from collections import deque
from typing import Final

_SAMPLE_MS: Final = 1000
_SAMPLES: Final = 11
UNLIMITED: Final = 2**63 - 1


class ReplicationQuota:
    def __init__(self, bytes_per_second: int = UNLIMITED) -> None:
        self.bytes_per_second = bytes_per_second
        self._samples: deque[tuple[int, int]] = deque()
        """(start, bytes), oldest first."""

    def record(self, count: int, now_ms: int) -> None:
        samples = self._samples
        if samples and now_ms - samples[-1][0] < _SAMPLE_MS:
            begin, before = samples[-1]
            samples[-1] = (begin, before + count)
        else:
            samples.append((now_ms, count))
        self._forget(now_ms)

    def exceeded(self, now_ms: int) -> bool:
        if self.bytes_per_second >= UNLIMITED:
            return False
        self._forget(now_ms)
        if not self._samples:
            return False
        elapsed_ms = max(now_ms - self._samples[0][0], _SAMPLE_MS)
        return sum(count for _, count in self._samples) * 1000 > self.bytes_per_second * elapsed_ms

    def _forget(self, now_ms: int) -> None:
        samples = self._samples
        while samples and now_ms - samples[0][0] >= _SAMPLE_MS * _SAMPLES:
            samples.popleft()


def is_throttled(replicas: tuple[str, ...], partition: int, broker_id: int) -> bool:
    """Whether a topic's list of throttled replicas, `*` or pairs `partition:broker`, includes this one."""
    return replicas == ("*",) or f"{partition}:{broker_id}" in replicas
