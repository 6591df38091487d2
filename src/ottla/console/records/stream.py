"""Threads that read records, as streams of events.

1. A thread waits while the client does not take its events: memory is bounded by `AHEAD` events.
2. When the client goes away, the thread's next event, or its next look at `cancelled`, ends it.
3. At most `STREAMS_MAX` run at once; one more is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

from ottla.cli.failure import Failure
from ottla.cli.selection import Tally
from ottla.console.sse import Event

logger = logging.getLogger("ottla.console")

AHEAD: Final = 8
STREAMS_MAX: Final = 32
_LOOK_S: Final = 0.1


class ClientGone(Exception):
    """The client has closed the stream."""


class Outlet:
    """What a thread has of its stream."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.events: asyncio.Queue[Event | None] = asyncio.Queue()
        self._room = threading.Semaphore(AHEAD)
        self.scanned = Tally()
        """What it has read so far."""
        self._gone = threading.Event()

    @property
    def cancelled(self) -> bool:
        return self._gone.is_set()

    def check(self) -> None:
        """ClientGone if nobody listens any more."""
        if self._gone.is_set():
            raise ClientGone

    def send(self, name: str, document: Any) -> None:
        """Wait until there is room for the event."""
        while not self._room.acquire(timeout=_LOOK_S):
            self.check()
        self.check()
        self._put((name, document))

    def end(self) -> None:
        self._put(None)

    def _put(self, event: Event | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(self.events.put_nowait, event)

    def taken(self) -> None:
        self._room.release()

    def leave(self) -> None:
        self._gone.set()


class Streams:
    """All that run in a process."""

    def __init__(self) -> None:
        self.begun = 0
        self._outlets: set[Outlet] = set()
        self._ended = Tally()
        """What those have read that have ended."""

    @property
    def running(self) -> int:
        return len(self._outlets)

    @property
    def scanned(self) -> Tally:
        """What all of them have read."""
        tallies = [self._ended, *(outlet.scanned for outlet in self._outlets)]
        return Tally(sum(each.records for each in tallies), sum(each.size_bytes for each in tallies))

    def check(self) -> None:
        """Failure if there is no room for one more."""
        if self.running >= STREAMS_MAX:
            raise Failure(f"{STREAMS_MAX} searches and live views run already", "close some, and try again", code="TOO_MANY")

    async def run(self, work: Callable[[Outlet], None], failed: Callable[[Exception], Event]) -> AsyncIterator[Event]:
        """The events that `work` sends, in a thread of its own. `failed` makes the last event out of its exception."""
        outlet = Outlet(asyncio.get_running_loop())

        def body() -> None:
            try:
                work(outlet)
            except ClientGone:
                pass
            except Exception as error:
                with contextlib.suppress(ClientGone):
                    outlet.send(*failed(error))
            finally:
                outlet.end()

        self.begun += 1
        self._outlets.add(outlet)
        thread = threading.Thread(target=body, name="ottla-console-stream", daemon=True)
        thread.start()
        try:
            while (event := await outlet.events.get()) is not None:
                outlet.taken()
                yield event
        finally:
            outlet.leave()
            self._outlets.discard(outlet)
            self._ended.records += outlet.scanned.records
            self._ended.size_bytes += outlet.scanned.size_bytes
