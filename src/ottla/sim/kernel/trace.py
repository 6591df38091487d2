"""What happened in a run: the last lines to read, and one hash over all of them.

Two runs of one seed must give the same hash. The first line that differs shows where something came in that is not seeded.
"""

from __future__ import annotations

import hashlib
from collections import deque
from collections.abc import Callable
from typing import Final

LINES_KEPT: Final = 60


class Trace:
    """Lines of events, each with its virtual time."""

    def __init__(self, now: Callable[[], float], *, keep: int = LINES_KEPT, echo: Callable[[str], None] | None = None) -> None:
        self._now = now
        self._hash = hashlib.blake2b(digest_size=8)
        self._echo = echo
        self.count = 0
        self.last: deque[str] = deque(maxlen=keep)

    def add(self, event: str) -> None:
        line = f"{self._now():12.6f} {event}"
        self.count += 1
        self._hash.update(line.encode())
        self._hash.update(b"\n")
        self.last.append(line)
        if self._echo is not None:
            self._echo(line)

    @property
    def digest(self) -> str:
        return self._hash.hexdigest()
