"""How often something happens, as Kafka's one-minute rates tell it: what is a minute old weighs a third of what is new."""

from __future__ import annotations

from math import exp
from typing import Final

_TICK_S: Final = 5.0
_KEPT: Final = exp(-_TICK_S / 60)
"""The weight of the past at each tick."""


class OneMinuteRate:
    """Moves every five seconds; 0 until the first five are over."""

    def __init__(self, now_s: float) -> None:
        self._ticked_s = now_s
        self._count = 0
        self._rate: float | None = None

    def add(self, now_s: float) -> None:
        self._tick(now_s)
        self._count += 1

    def per_second(self, now_s: float) -> float:
        self._tick(now_s)
        return self._rate or 0.0

    def _tick(self, now_s: float) -> None:
        ticks = int((now_s - self._ticked_s) / _TICK_S)
        if ticks <= 0:
            return
        self._ticked_s += ticks * _TICK_S
        recent, self._count = self._count / _TICK_S, 0
        first = recent if self._rate is None else recent + (self._rate - recent) * _KEPT
        self._rate = first * _KEPT ** (ticks - 1)  # nothing happened in the later ones
