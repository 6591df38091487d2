"""An event loop in virtual time.

Owns: the order in which callbacks run, and virtual time, which jumps to the next timer when nothing is ready.
Never: sleeps, reads a clock, starts a thread, opens a descriptor; `run_in_executor` is refused (work that blocks goes through the
`Workers` port).

1. Callbacks run in the order they were scheduled; timers in the order of (time, scheduling).
2. Nothing ready, no timer, and the main task not done is a `Deadlock`.
3. What belongs to a dead process is dropped, never called.
4. An exception that nobody handled is kept in `unhandled`: such a run has failed.
"""

from __future__ import annotations

import asyncio
import heapq
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, NoReturn, TypeVar

from ottla.sim.kernel.process import CURRENT, Process, ProcessDied

T = TypeVar("T")

STEPS_MAX = 2_000_000
"""Callbacks in one run. More means something spins without time passing."""


class Deadlock(Exception):
    """Every task waits, and nothing is scheduled."""


class TooManySteps(Exception):
    """The run does not end."""


class SimLoop(asyncio.AbstractEventLoop):
    """Just enough of an event loop for tasks, futures, timers and the virtual network."""

    def __init__(self, start_s: float = 1000.0, steps_max: int = STEPS_MAX) -> None:
        self._now_s = start_s
        self._ready: deque[asyncio.Handle] = deque()
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._sequence = 0
        self._steps = 0
        self._steps_max = steps_max
        self._running = False
        self._closed = False
        self.unhandled: list[dict[str, Any]] = []

    # -- time

    def time(self) -> float:
        return self._now_s

    @property
    def steps(self) -> int:
        return self._steps

    # -- scheduling

    def call_soon(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now_s + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        self._sequence += 1
        heapq.heappush(self._timers, (when, self._sequence, handle))
        return handle

    def call_soon_threadsafe(self, callback: Callable[..., object], *args: Any, context: Context | None = None) -> asyncio.Handle:  # type: ignore[override]
        # There is one thread only, but code that may be called from a worker uses this name.
        return self.call_soon(callback, *args, context=context)

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None:
        """Cancelled timers leave the heap when their time comes."""

    def create_future(self) -> asyncio.Future[Any]:
        return asyncio.Future(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: object = None, context: Context | None = None, **_: Any
    ) -> asyncio.Task[T]:
        task: asyncio.Task[T] = asyncio.Task(coro, loop=self, name=None if name is None else str(name), context=context)
        process = CURRENT.get() if context is None else context.get(CURRENT, None)
        if process is not None:
            tasks = process.tasks
            tasks.append(task)
            if len(tasks) % 64 == 0:
                process.tasks = [t for t in tasks if not t.done() or t._log_traceback]
        return task

    # -- running

    def run_until_complete(self, future: Coroutine[Any, Any, T] | asyncio.Future[T]) -> T:  # type: ignore[override]
        if self._running:
            raise RuntimeError("this loop runs already")
        self._check_open()
        main = asyncio.ensure_future(future, loop=self)
        self._running = True
        asyncio._set_running_loop(self)
        try:
            while not main.done():
                self._step(main)
        finally:
            asyncio._set_running_loop(None)
            self._running = False
            if not main.done():
                main.cancel()
                main._log_destroy_pending = False  # type: ignore[attr-defined]
        return main.result()

    def _step(self, main: asyncio.Future[Any]) -> None:
        ready = self._ready
        if not ready:
            self._jump(main)
        timers = self._timers
        while timers and timers[0][0] <= self._now_s:
            ready.append(heapq.heappop(timers)[2])
        # Only what is ready now: what these schedule runs in the next round, after due timers, as in asyncio.
        for _ in range(len(ready)):
            handle = ready.popleft()
            if handle._cancelled:
                continue
            process: Process | None = handle._context.get(CURRENT, None)  # type: ignore[attr-defined]
            if process is not None:
                if not process.alive:
                    continue
                if process.paused:
                    process.held.append(handle)
                    continue
            self._steps += 1
            handle._run()
        if self._steps > self._steps_max:
            raise TooManySteps(f"more than {self._steps_max} callbacks, virtual time {self._now_s:.3f} s")

    def resume(self, held: list[asyncio.Handle]) -> None:
        """Run what a paused process has missed, in its order."""
        self._ready.extend(held)

    def _jump(self, main: asyncio.Future[Any]) -> None:
        timers = self._timers
        while timers:
            when, _, handle = timers[0]
            process: Process | None = handle._context.get(CURRENT, None)  # type: ignore[attr-defined]
            if handle._cancelled or (process is not None and not process.alive):
                heapq.heappop(timers)
                continue
            if when > self._now_s:
                self._now_s = when
            return
        raise Deadlock(f"nothing is ready and no timer runs, but {main!r} is not done")

    def run_forever(self) -> NoReturn:
        raise NotImplementedError("a simulated run has an end: use run_until_complete")

    def stop(self) -> NoReturn:
        raise NotImplementedError("a simulated run ends when its main task does")

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._closed

    def close(self) -> None:
        self._ready.clear()
        self._timers.clear()
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise RuntimeError("Event loop is closed")

    async def shutdown_asyncgens(self) -> None:
        return None

    async def shutdown_default_executor(self, timeout: float | None = None) -> None:
        return None

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> NoReturn:  # type: ignore[override]
        raise NotImplementedError("no threads in the virtual world: use the Workers port")

    # -- exceptions

    def get_debug(self) -> bool:
        return False

    def set_debug(self, enabled: bool) -> None:
        """Off: the trace shows what there is to debug."""

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        if isinstance(error, ProcessDied):
            return
        self.unhandled.append(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self.call_exception_handler(context)

    def get_exception_handler(self) -> None:
        return None

    def set_exception_handler(self, handler: Any) -> None:
        """Unhandled exceptions fail the run; no other handler is called."""


def new_loop() -> SimLoop:
    # What is left abstract (sockets, signals, subprocesses) raises NotImplementedError, which is just right here.
    return SimLoop()  # type: ignore[abstract]
