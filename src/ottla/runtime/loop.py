"""The event loop (uvloop if it is installed, else asyncio's), worker threads, and the `World` of real ports."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, TypeVar

from ottla.metrics import Counters
from ottla.ports import World

if TYPE_CHECKING:
    from ottla.cluster.settings import BrokerSettings

T = TypeVar("T")

TURN_S = 0.00005
CANCEL_S = 0.5


def new_event_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """Run `main` to its end on a new loop."""
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(main)


async def end(task: asyncio.Task[Any]) -> None:
    """Cancel a task until it has ended: before Python 3.12 asyncio.wait_for loses a cancellation that comes with its result."""
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=CANCEL_S)


class ThreadWorkers:
    """`ports.Workers` on threads, started with the first work."""

    def __init__(self, threads_max: int = 4) -> None:
        self._threads_max = threads_max
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], T]) -> T:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads_max, thread_name_prefix="ottla-worker")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def let_others_run(self) -> None:
        # A sleep of zero would take the interpreter back before another thread wakes up.
        time.sleep(TURN_S)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None


def raise_descriptor_limit() -> None:
    """Raise the soft limit of open files to the hard limit: the usual 1024 is too low for a broker."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            pass  # some systems refuse their own hard limit


def real_world(counters: Counters, settings: BrokerSettings | None = None) -> World:
    """The ports on this machine."""
    raise_descriptor_limit()
    from ottla.runtime.clock import SystemClock, SystemRandom
    from ottla.runtime.descriptors import ProcessDescriptors
    from ottla.runtime.files import OsDisk
    from ottla.runtime.network import BACKLOG, RealNetwork

    def given(name: str) -> int | None:
        return settings.int(name) if settings is not None and name in settings.static else None

    return World(
        clock=SystemClock(),
        random=SystemRandom(),
        disk=OsDisk(),
        workers=ThreadWorkers(),
        network=RealNetwork(
            counters,
            backlog=given("socket.listen.backlog.size") or BACKLOG,
            # Not Kafka's defaults: for sending see SEND_BUFFER_BYTES, for receiving the system chooses.
            send_buffer_bytes=given("socket.send.buffer.bytes") or None,
            receive_buffer_bytes=given("socket.receive.buffer.bytes"),
        ),
        descriptors=ProcessDescriptors(),
    )
