"""How busy the event loop is: how late it runs a timer, and the CPU time of its thread.

A timer every `TICK_S` is as late as any other event at that moment, so its lateness is a sample of how long requests wait for the
loop. The loop's timers have a precision of a millisecond: less counts as none.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from ottla.metrics.histogram import TIME_BOUNDS_S, Histogram

TICK_S: Final = 0.02
PRECISION_S: Final = 0.0015
SHARE_S: Final = 10.0
"""Length of a sample of the busy share."""
SAMPLES: Final = 6
"""How many samples are kept: shares and stalls are those of the last minute."""


class LoopWatch:
    def __init__(self, loop: asyncio.AbstractEventLoop, monotonic: Callable[[], float], cpu_s: Callable[[], float]) -> None:
        """`cpu_s`: the CPU time of the loop's thread so far."""
        self._loop = loop
        self._monotonic = monotonic
        self.cpu_s = cpu_s
        self.lateness_s = Histogram(TIME_BOUNDS_S)
        self._stalls: deque[float] = deque([0.0], maxlen=SAMPLES)
        self._uses: deque[tuple[float, float]] = deque(maxlen=SAMPLES)
        """(monotonic, CPU) at the start of each sample."""
        self._planned = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        self._begin_sample(self._monotonic())
        self._plan()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def stall_s_max(self) -> float:
        return max(self._stalls)

    def idle_share(self) -> float:
        """The share of the last minute in which the loop was idle."""
        since, cpu_before = self._uses[0]
        passed = self._monotonic() - since
        if passed <= 0:
            return 1.0
        return max(0.0, min(1.0, 1.0 - (self.cpu_s() - cpu_before) / passed))

    def _plan(self) -> None:
        self._planned = self._monotonic() + TICK_S
        self._timer = self._loop.call_later(TICK_S, self._tick)

    def _tick(self) -> None:
        now = self._monotonic()
        late = now - self._planned
        late = late if late > PRECISION_S else 0.0
        self.lateness_s.add(late)
        if late > self._stalls[-1]:
            self._stalls[-1] = late
        if now - self._uses[-1][0] >= SHARE_S:
            self._begin_sample(now)
        self._plan()

    def _begin_sample(self, now: float) -> None:
        self._uses.append((now, self.cpu_s()))
        self._stalls.append(0.0)
