"""One broker of a world: its machine, its settings, and its processes one after the other.

Owns: the running process, the disk and the clock that outlive it, and how a process starts and ends.
Never: decides when. That is the world's.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Coroutine, Mapping
from typing import Any, Final

from ottla.broker.app import Broker, StartupError
from ottla.cluster.settings import BrokerSettings
from ottla.sim.kernel.disk import SimDisk
from ottla.sim.kernel.loop import SimLoop
from ottla.sim.kernel.machine import Machine
from ottla.sim.kernel.metadata_tree import MetadataTree
from ottla.sim.kernel.network import SimNetwork
from ottla.sim.kernel.process import Process
from ottla.sim.kernel.trace import Trace
from ottla.sim.violation import Violation, require

START_S_MAX: Final = 120.0
STOP_S_MAX: Final = 120.0


class Complaints(logging.Handler):
    """Errors that brokers log with an exception. Errors of the disk do not count."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.found: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        error = record.exc_info[1] if record.exc_info else None
        if error is not None and not isinstance(error, OSError):
            self.found.append(f"{record.getMessage()}: {error!r}")

    def __enter__(self) -> Complaints:
        logger = logging.getLogger("ottla")
        self._before = logger.level, logger.propagate
        logger.addHandler(self)
        logger.setLevel(logging.ERROR)
        logger.propagate = False
        return self

    def __exit__(self, *_: object) -> None:
        logger = logging.getLogger("ottla")
        logger.removeHandler(self)
        logger.setLevel(self._before[0])
        logger.propagate = self._before[1]

    def check(self) -> None:
        if self.found:
            raise Violation("unhandled", self.found[0])


class Node:
    """A broker that is started, stopped, killed and started again."""

    def __init__(
        self,
        number: int,
        seed: str,
        loop: SimLoop,
        network: SimNetwork,
        tree: MetadataTree,
        properties: Mapping[str, str],
        trace: Trace,
        *,
        page_bytes: int = 512,
        worker_delay_s_max: float = 0.0,
    ) -> None:
        self.number = number
        self.host = f"broker-{number}"
        self.port = int(properties["listeners"].rpartition(":")[2])
        self.rng = random.Random(f"node {number} {seed}")
        self.disk = SimDisk(random.Random(f"disk {number} {seed}"), page_bytes=page_bytes)
        self.settings = BrokerSettings.parse(dict(properties))
        self.log_dirs = self.settings.log_dirs()
        self._loop = loop
        self._network = network
        self._tree = tree
        self._trace = trace
        self._machine = Machine(
            random.Random(f"machine {number} {seed}"),
            self.disk,
            network,
            worker_delay_s_max=worker_delay_s_max,
            host=self.host,
        )
        self.process: Process | None = None
        self.broker: Broker | None = None
        """Set once it has started, until its process is dead."""
        self.processes: list[Process] = []
        self.died: asyncio.Future[None] = loop.create_future()
        self.died.set_result(None)
        self.lives = 0
        self.cut_from_store = False
        self.stopping: asyncio.Task[None] | None = None
        """The task of its clean stop, once that was requested."""

    @property
    def alive(self) -> bool:
        return self.process is not None and self.process.alive

    @property
    def serves(self) -> bool:
        return self.alive and self.broker is not None and self.stopping is None

    def set_clock(self, skew_ms: int) -> None:
        if self._machine.clock is not None:
            self._machine.clock.skew_ms = skew_ms

    def spawn(self, main: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        assert self.process is not None
        return self._loop.create_task(main, context=self.process.context())

    async def start(self) -> bool:
        """Start the broker. False: it died while starting."""
        assert not self.alive, f"{self.host} lives already"
        process = self.process = Process(f"{self.host} life {self.lives}")
        self.lives += 1
        self.processes.append(process)
        self.broker = self.stopping = None
        died = self.died = self._loop.create_future()
        process.at_death.append(lambda: self._on_death(died))
        self._trace.add(f"{self.host} starts")
        world = self._machine.world(process)
        started: asyncio.Future[Broker] = self._loop.create_future()

        async def main() -> None:
            store = self._tree.session(process, self.rng, delay_s_max=0.005, host=self.host)
            broker = Broker(self.settings, world, store=store)
            try:
                await broker.start()
            except Exception as error:
                if not started.done():
                    started.set_exception(error)
            else:
                if not started.done():
                    started.set_result(broker)

        self.spawn(main())
        done, _ = await asyncio.wait([started, died], timeout=START_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        if died in done:
            started.cancel()
            return False
        require(bool(done), "hang", f"{self.host} did not start in {START_S_MAX} s")
        try:
            self.broker = started.result()
        except (StartupError, OSError) as error:
            raise Violation("start", f"{self.host} does not start: {error}") from error
        self._trace.add(f"{self.host} serves")
        return True

    def _on_death(self, died: asyncio.Future[None]) -> None:
        self.broker = None
        if not died.done():
            died.set_result(None)

    async def stop(self) -> bool:
        """Stop cleanly. False: it died meanwhile."""
        assert self.broker is not None
        died, process = self.died, self.process
        assert process is not None
        if self.stopping is None:
            self.stopping = self.spawn(self.broker.stop())
        # The caller may be cancelled; the stop goes on, and another caller may wait for it.
        done, _ = await asyncio.wait([self.stopping, died], timeout=STOP_S_MAX, return_when=asyncio.FIRST_COMPLETED)
        require(bool(done), "hang", f"{self.host} did not stop in {STOP_S_MAX} s")
        if died in done:
            return False
        self._trace.add(f"{self.host} stopped")
        self.kill()
        return True

    def pause(self) -> None:
        """Pause it as SIGSTOP does; the store gets no pings either."""
        if self.process is not None and self.process.alive and not self.process.paused:
            self._trace.add(f"{self.host} is paused")
            self.process.pause()
            self._tree.cut(self.host)

    def resume(self) -> None:
        if self.process is not None and self.process.paused:
            self._trace.add(f"{self.host} is resumed")
            if not self.cut_from_store:
                self._tree.heal(self.host)
            self.process.resume(self._loop)

    def cut_store(self) -> None:
        self.cut_from_store = True
        self._tree.cut(self.host)

    def heal_store(self) -> None:
        self.cut_from_store = False
        if self.process is not None and not self.process.paused:
            self._tree.heal(self.host)

    def kill(self) -> None:
        """Kill the process. What it wrote stays."""
        if self.process is not None:
            self.process.die()
            self.disk.kill(self.process)
        self.disk.forget_crash_point()

    def crash(self) -> None:
        """Crash the machine: what was not flushed is lost, or a part of it."""
        if self.process is not None:
            self.process.die()
        self.disk.forget_crash_point()
        self._trace.add(f"{self.host} crashes: {self.disk.crash()}")

    def heal_disk(self) -> None:
        self.disk.faults.clear()
        self.disk.capacity_bytes = None

    def bury(self) -> None:
        for process in self.processes:
            process.die()
            process.bury()
