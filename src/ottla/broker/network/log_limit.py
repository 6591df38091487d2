"""Limits the log lines that clients can cause: a flood of bad input must not become a flood of lines."""

from __future__ import annotations

import logging
from collections.abc import Callable

LINES_MAX = 10
WINDOW_S = 10.0


class LogLimit:
    """Logs up to `LINES_MAX` lines of a kind per window, and then how many it suppressed."""

    def __init__(self, logger: logging.Logger, monotonic: Callable[[], float]) -> None:
        self._logger = logger
        self._monotonic = monotonic
        self._windows: dict[str, tuple[float, int]] = {}

    def warn(self, kind: str, message: str) -> None:
        now = self._monotonic()
        start, count = self._windows.get(kind, (now, 0))
        if now - start >= WINDOW_S:
            if count > LINES_MAX:
                self._logger.warning("%s: suppressed %d more lines in %.0f s", kind, count - LINES_MAX, now - start)
            start, count = now, 0
        count += 1
        self._windows[kind] = (start, count)
        if count <= LINES_MAX:
            self._logger.warning("%s: %s", kind, message)
