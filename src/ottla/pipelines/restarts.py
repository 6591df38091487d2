"""When a flow that failed starts again. Decides only: `running` starts it.

The time doubles with each failure from `backoff_ms` to `backoff_max_ms`, and begins anew once the flow has written a batch.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ottla.pipelines.failure import PipelineError


@dataclass
class Restarts:
    enabled: bool
    backoff_ms: int
    backoff_max_ms: int
    _failures: dict[str, int] = field(default_factory=dict)
    """By flow, how often it failed since its last batch."""
    _batches: dict[str, int] = field(default_factory=dict)
    """By flow that failed, the number of its batches then."""
    _due_s: dict[str, float] = field(default_factory=dict)

    def failed(self, flow: str, failure: PipelineError, batches: int, now_s: float) -> float | None:
        """The seconds until the flow starts again; None if it does not."""
        if not self.enabled or failure.is_final:
            return None
        if batches > self._batches.get(flow, -1):
            self._failures[flow] = 0
        self._failures[flow] += 1
        self._batches[flow] = batches
        doubled_ms = self.backoff_ms << min(self._failures[flow] - 1, 32)
        backoff_ms = min(doubled_ms, self.backoff_max_ms)
        self._due_s[flow] = now_s + backoff_ms / 1000
        return backoff_ms / 1000

    @property
    def waiting(self) -> bool:
        """Whether a flow is to start again."""
        return bool(self._due_s)

    def due(self, now_s: float) -> list[str]:
        """The flows that start again now. Each is told once."""
        found = [flow for flow, due_s in self._due_s.items() if due_s <= now_s]
        for flow in found:
            del self._due_s[flow]
        return found

    def has_recovered(self, flow: str, batches: int) -> bool:
        """Whether the flow has written a batch since it failed. Told once."""
        if flow in self._due_s or flow not in self._batches or batches <= self._batches[flow]:
            return False
        del self._batches[flow]
        del self._failures[flow]
        return True
