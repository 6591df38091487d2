"""Counters for metrics exporters. Plain integers, written on the event loop only, so that no lock is needed."""

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
