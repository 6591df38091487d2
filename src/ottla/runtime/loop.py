"""The event loop, its worker threads, and the real world put together.

uvloop where it exists, asyncio's own loop elsewhere: nothing above may depend on which.
"""

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


class ThreadWorkers:
    """`ports.Workers` on threads. They exist only once there is work."""

    __slots__ = ("_pool", "_threads_max")

    def __init__(self, threads_max: int = 4) -> None:
        self._threads_max = threads_max
        self._pool: ThreadPoolExecutor | None = None

    async def run(self, work: Callable[[], T]) -> T:
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads_max, thread_name_prefix="ottla-worker")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    def let_others_run(self) -> None:
        # Letting go of the interpreter for no time at all would mean having it again before anyone woke up.
        time.sleep(TURN_S)

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=True)
            self._pool = None


def raise_descriptor_limit() -> None:
    """Allow this process as many open files and sockets as the system lets it: the usual 1024 are few for a broker."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard == resource.RLIM_INFINITY or soft < hard:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        except (ValueError, OSError):
            pass  # some systems promise more than they give


def real_world(counters: Counters, settings: BrokerSettings | None = None) -> World:
    """This machine: its clock, chance, files, threads and network."""
    raise_descriptor_limit()
    from ottla.runtime.clock import SystemClock, SystemRandom
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
            # Where nothing is given not Kafka's defaults: for sending see SEND_BUFFER_BYTES, for receiving the system chooses.
            send_buffer_bytes=given("socket.send.buffer.bytes") or None,
            receive_buffer_bytes=given("socket.receive.buffer.bytes"),
        ),
    )
