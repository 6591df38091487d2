"""One virtual machine: clock, random numbers, disk, workers and network, as the ports of its processes."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Final, TypeVar

from ottla.ports import World
from ottla.sim.kernel.disk import SimDisk
from ottla.sim.kernel.network import SimNetwork
from ottla.sim.kernel.process import Process

T = TypeVar("T")

START_MS: Final = 1_700_000_000_000


class SeededRandom:
    """`ports.Random` of a run."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng

    def bytes(self, count: int) -> bytes:
        return self._rng.randbytes(count)

    def below(self, limit: int) -> int:
        return self._rng.randrange(limit)


class SimClock:
    """`ports.Clock`: wall time is `START_MS` plus the loop's time plus a skew, which may be set."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.skew_ms = 0

    def now_ms(self) -> int:
        return START_MS + self.skew_ms + int(self._loop.time() * 1000)

    def monotonic(self) -> float:
        return self._loop.time()


class SimWorkers:
    """`ports.Workers` without threads: the work starts after a seeded delay, and its result arrives after another."""

    def __init__(self, rng: random.Random, delay_s_max: float) -> None:
        self._rng = rng
        self._delay_s_max = delay_s_max

    async def run(self, work: Callable[[], T]) -> T:
        await asyncio.sleep(self._rng.random() * self._delay_s_max)
        try:
            return work()
        finally:
            await asyncio.sleep(self._rng.random() * self._delay_s_max)

    def let_others_run(self) -> None:
        """There is one thread."""


class Machine:
    """What outlives the processes that run on it."""

    def __init__(
        self, rng: random.Random, disk: SimDisk, network: SimNetwork, *, worker_delay_s_max: float, host: str = "127.0.0.1"
    ) -> None:
        self._rng = rng
        self._host = host
        self.disk = disk
        self.network = network
        self.clock: SimClock | None = None
        self._worker_delay_s_max = worker_delay_s_max

    def world(self, process: Process) -> World:
        if self.clock is None:
            self.clock = SimClock(asyncio.get_running_loop())
        return World(
            clock=self.clock,
            random=SeededRandom(self._rng),
            disk=self.disk.view(process),
            workers=SimWorkers(self._rng, self._worker_delay_s_max),
            network=self.network.view(process, self._host),
        )
