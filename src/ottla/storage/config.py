"""The settings of one log. The values come from `cluster.settings`; the defaults are Kafka's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ottla.ports import Random

INT64_MAX: Final = (1 << 63) - 1
HOUR_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class LogConfig:
    segment_bytes: int = 1 << 30
    segment_ms: int = 168 * HOUR_MS
    segment_jitter_ms: int = 0
    index_bytes_max: int = 10 << 20
    index_interval_bytes: int = 4096
    retention_ms: int = 168 * HOUR_MS
    """-1: unlimited."""
    retention_bytes: int = -1
    """-1: unlimited."""
    flush_messages: int = INT64_MAX
    flush_ms: int = INT64_MAX
    file_delete_delay_ms: int = 60_000
    cleanup_policy: frozenset[str] = frozenset({"delete"})
    delete_retention_ms: int = 24 * HOUR_MS
    min_compaction_lag_ms: int = 0
    max_compaction_lag_ms: int = INT64_MAX
    min_cleanable_dirty_ratio: float = 0.5

    @property
    def segment_ms_max(self) -> int:
        """The age at which a segment is rolled. A compacted log rolls in time for `max.compaction.lag.ms`, because the active
        segment is never cleaned."""
        if self.compacted and 0 < self.max_compaction_lag_ms < self.segment_ms:
            return self.max_compaction_lag_ms
        return self.segment_ms

    def draw_jitter_ms(self, random: Random) -> int:
        """A random amount by which a segment is rolled earlier, so that not all roll at once."""
        limit = min(self.segment_jitter_ms, self.segment_ms_max)
        return random.below(limit) if limit > 0 else 0

    @property
    def compacted(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def deletes(self) -> bool:
        return "delete" in self.cleanup_policy
