"""What a run does periodically beside its flows, in one thread: compact tables, list the files of static tables again.

Flows never wait for it, and what fails here is a warning: it is tried again at its next time.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

logger = logging.getLogger("ottla.pipelines")


@dataclass
class Housekeeping:
    stopping: threading.Event
    _chores: list[tuple[str, float, Callable[[], object]]] = field(default_factory=list)
    _thread: threading.Thread | None = None

    def add(self, what: str, interval_s: float, do: Callable[[], object]) -> None:
        self._chores.append((what, interval_s, do))

    def start(self) -> None:
        if self._chores:
            self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)
            self._thread.start()

    def join(self, timeout_s: float) -> None:
        if self._thread is not None:
            self._thread.join(timeout_s)

    def _run(self) -> None:
        now_s = time.monotonic()
        due = [now_s + interval_s for _, interval_s, _ in self._chores]
        while not self.stopping.wait(max(min(due) - time.monotonic(), 0)):
            number = due.index(min(due))
            what, interval_s, do = self._chores[number]
            try:
                do()
            except Exception as error:
                if self.stopping.is_set():
                    return
                logger.warning("%s: %s", what, str(error).split("\n", 1)[0])
            due[number] = time.monotonic() + interval_s
