"""The purgatory: requests that wait for a condition or their deadline (F76).

Owns the watch lists and the deadlines. A waiter brings the condition and makes the answer.

1. A waiter watches keys. Waking a key tests its waiters at once, in the order of arrival, and answers those whose test holds.
2. A waiter is answered once: when its test holds, at its deadline, or not at all if its future is cancelled.
3. An answered or cancelled waiter is on no watch list. Its deadline entry may remain, but there are never more dead entries than
   live ones (and a few). One timer serves all deadlines.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from heapq import heapify, heappop, heappush
from typing import Any, Generic, TypeVar

T = TypeVar("T")

_DEAD_ENTRIES_SLACK = 64


class Waiter(Generic[T]):
    """One delayed operation."""

    def __init__(
        self,
        keys: Sequence[Hashable],
        deadline: float,
        ready: Callable[[], bool],
        answer: Callable[[], T],
        future: asyncio.Future[T],
    ) -> None:
        self.keys = keys
        self.deadline = deadline
        self.ready = ready
        self.answer = answer
        self.future = future
        self.waiting = True


class Purgatory:
    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._watched: dict[Hashable, dict[Waiter[Any], None]] = {}
        self._deadlines: list[tuple[float, int, Waiter[Any]]] = []
        self._sequence = 0
        self._waiting = 0
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0

    def __len__(self) -> int:
        """The number of waiters."""
        return self._waiting

    @property
    def watched_keys(self) -> int:
        return len(self._watched)

    def watched_by(self) -> dict[asyncio.Future[Any], Sequence[Hashable]]:
        """The keys of each waiter, by its future."""
        return {waiter.future: waiter.keys for _, _, waiter in self._deadlines if waiter.waiting}

    def wait(
        self, keys: Sequence[Hashable], timeout_ms: int, ready: Callable[[], bool], answer: Callable[[], T]
    ) -> asyncio.Future[T]:
        """Wait until `ready()` holds after a wake of one of `keys`, or until the timeout; then the result is `answer()`.

        The caller has checked that `ready()` does not hold yet. Cancelling the future ends the wait.
        """
        future: asyncio.Future[T] = self._loop.create_future()
        waiter = Waiter(keys, self._loop.time() + timeout_ms / 1000, ready, answer, future)
        watched = self._watched
        for key in keys:
            waiters = watched.get(key)
            if waiters is None:
                watched[key] = {waiter: None}
            else:
                waiters[waiter] = None
        self._waiting += 1
        self._sequence += 1
        heappush(self._deadlines, (waiter.deadline, self._sequence, waiter))
        if self._timer is None or waiter.deadline < self._timer_at:
            self._arm()
        future.add_done_callback(lambda done: self._leave(waiter) if done.cancelled() else None)
        return future

    def wake(self, key: Hashable) -> None:
        """Something about `key` changed."""
        watched = self._watched
        if not watched:
            return
        waiters = watched.get(key)
        if waiters is None:
            return
        for waiter in list(waiters):
            # A waiter tested before may have answered (or cancelled) this one.
            if waiter.future.done():
                continue
            try:
                if waiter.ready():
                    self._answer(waiter)
            except Exception as error:
                self._fail(waiter, error)

    def close(self) -> None:
        """Cancel all waiters."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for _, _, waiter in self._deadlines:
            waiter.waiting = False
            waiter.future.cancel()
        self._deadlines.clear()
        self._watched.clear()
        self._waiting = 0

    def _answer(self, waiter: Waiter[Any]) -> None:
        self._leave(waiter)
        try:
            answer = waiter.answer()
        except Exception as error:
            waiter.future.set_exception(error)
        else:
            waiter.future.set_result(answer)

    def _fail(self, waiter: Waiter[Any], error: Exception) -> None:
        self._leave(waiter)
        if not waiter.future.done():
            waiter.future.set_exception(error)

    def _leave(self, waiter: Waiter[Any]) -> None:
        if not waiter.waiting:
            return
        waiter.waiting = False
        watched = self._watched
        for key in waiter.keys:
            waiters = watched.get(key)
            if waiters is not None:
                waiters.pop(waiter, None)
                if not waiters:
                    del watched[key]
        self._waiting -= 1
        deadlines = self._deadlines
        if len(deadlines) > 2 * self._waiting + _DEAD_ENTRIES_SLACK:
            deadlines[:] = [entry for entry in deadlines if entry[2].waiting]
            heapify(deadlines)

    def _arm(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        deadlines = self._deadlines
        while deadlines and not deadlines[0][2].waiting:
            heappop(deadlines)
        if deadlines:
            self._timer_at = deadlines[0][0]
            self._timer = self._loop.call_at(self._timer_at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = None
        # The loop may call up to a millisecond early.
        now = self._loop.time() + 0.001
        deadlines = self._deadlines
        while deadlines and deadlines[0][0] <= now:
            _, _, waiter = heappop(deadlines)
            if waiter.waiting and not waiter.future.done():
                self._answer(waiter)
        self._arm()
