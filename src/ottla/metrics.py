"""Counters that anything may raise and an exporter may read.

Plain integers on one object: raising one costs an addition, and reading them needs no lock on the one loop that writes.
"""

from __future__ import annotations


class Counters:
    """Monotone counts by name, as `counters.add("bytes_out", n)`."""

    __slots__ = ("_values",)

    def __init__(self) -> None:
        self._values: dict[str, int] = {}

    def add(self, name: str, amount: int = 1) -> None:
        self._values[name] = self._values.get(name, 0) + amount

    def get(self, name: str) -> int:
        return self._values.get(name, 0)

    def snapshot(self) -> dict[str, int]:
        return dict(self._values)
