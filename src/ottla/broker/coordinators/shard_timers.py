"""The timers of all shards of one host: one heap, one timer of the event loop.

A timer belongs to a hosted shard and has a key there; setting a key again replaces its due time. Replaced and cancelled entries
stay in the heap until they are due, but are purged when they outnumber the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Any, Final

from ottla.coordinator.shard import CancelTimer, SetTimer, TimerKey

if TYPE_CHECKING:
    from ottla.broker.coordinators.shard_host import HostedShard
    from ottla.ports import Clock

logger = logging.getLogger(__name__)

_SLACK: Final = 64


class ShardTimers:
    def __init__(
        self, loop: asyncio.AbstractEventLoop, clock: Clock, on_due: Callable[[HostedShard[Any], TimerKey], None]
    ) -> None:
        self._loop = loop
        self._clock = clock
        self._on_due = on_due
        self._heap: list[tuple[float, int, HostedShard[Any], TimerKey]] = []
        self._heap_limit = _SLACK
        self._sequence = 0
        self._timer: asyncio.Handle | None = None
        self._timer_due = 0.0  # kept here: a uvloop handle for a time in the past has no `when`
        self._closed = False

    def close(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()

    def set(self, hosted: HostedShard[Any], changes: Iterable[SetTimer | CancelTimer]) -> None:
        now, now_ms = self._loop.time(), int(self._clock.monotonic() * 1000)
        heap, timers = self._heap, hosted.timers
        for timer in changes:
            if isinstance(timer, SetTimer):
                self._sequence += 1
                timers[timer.key] = self._sequence
                heappush(heap, (now + max(timer.due_ms - now_ms, 0) / 1000, self._sequence, hosted, timer.key))
            else:
                timers.pop(timer.key, None)
        if len(heap) > self._heap_limit:
            heap[:] = [entry for entry in heap if entry[2].timers.get(entry[3]) == entry[1]]
            heapify(heap)
            self._heap_limit = 2 * len(heap) + _SLACK
        self._arm()

    def _arm(self) -> None:
        heap = self._heap
        while heap and heap[0][2].timers.get(heap[0][3]) != heap[0][1]:
            heappop(heap)
        if self._timer is not None:
            if heap and self._timer_due <= heap[0][0] and not self._timer.cancelled():
                return
            self._timer.cancel()
            self._timer = None
        if heap and not self._closed:
            self._timer_due = heap[0][0]
            self._timer = self._loop.call_at(self._timer_due, self._fire)

    def _fire(self) -> None:
        self._timer = None
        # The loop may call up to a millisecond early.
        now = self._loop.time() + 0.001
        heap = self._heap
        due = []
        while heap and heap[0][0] <= now:
            due.append(heappop(heap))
        # Timers set by these callbacks are due in the next round at the earliest: a shard may set one within the millisecond.
        for _, sequence, hosted, key in due:
            if hosted.timers.get(key) != sequence:
                continue
            del hosted.timers[key]
            try:
                self._on_due(hosted, key)
            except Exception:
                # A bug in one group must not stop the timers of all others.
                logger.exception("Timer %s of %s failed", key, hosted.topic_partition)
        self._arm()


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
