"""Work that is repeated at an interval of the settings."""

from __future__ import annotations

import asyncio
from collections.abc import Callable


class Periodic:
    """Calls `work` every `interval_ms()` milliseconds. The interval is read again for each round: it may be dynamic."""

    __slots__ = ("_interval_ms", "_timer", "_work")

    def __init__(self, interval_ms: Callable[[], int], work: Callable[[], None]) -> None:
        self._interval_ms = interval_ms
        self._work = work
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Wait for the first interval, unless started already."""
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._interval_ms() / 1000, self._run)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _run(self) -> None:
        self._timer = None
        self.start()
        self._work()
