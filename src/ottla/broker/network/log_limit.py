"""Log lines that outsiders can cause, at most a few in a while: a flood of bad input must not become a flood of lines."""

from __future__ import annotations

import logging
from collections.abc import Callable

LINES_MAX = 10
WINDOW_S = 10.0


class LogLimit:
    """A logger that lets `LINES_MAX` lines of a kind through in each window and then says how many it kept back."""

    def __init__(self, logger: logging.Logger, monotonic: Callable[[], float]) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._windows: dict[str, tuple[float, int]] = {}

    def warn(self, kind: str, message: str) -> None:
        now = self._monotonic()
        start, count = self._windows.get(kind, (now, 0))
        if now - start >= WINDOW_S:
            if count > LINES_MAX:
                self._logger.warning("%s: %d more like it in %.0f s", kind, count - LINES_MAX, now - start)
            start, count = now, 0
        count += 1
        self._windows[kind] = (start, count)
        if count <= LINES_MAX:
            self._logger.warning("%s: %s", kind, message)
