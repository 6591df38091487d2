"""Counts of rare events. Plain integers, written on the event loop only, so that no lock is needed.

`counters.add("connections_refused")` is `ottla_connections_refused_total` on the metrics listener: each name has a row in
`metrics.table.EVENTS`. What every request counts has its own object with attributes (`broker.network.measuring`).
"""

from __future__ import annotations


class Counters:
    """Monotonic counts by name: `counters.add("bytes_out", n)`."""

    def __init__(self) -> None:
        self._values: dict[str, int] = {}

    def add(self, name: str, amount: int = 1) -> None:
        self._values[name] = self._values.get(name, 0) + amount

    def get(self, name: str) -> int:
        return self._values.get(name, 0)

    def snapshot(self) -> dict[str, int]:
        return dict(self._values)
