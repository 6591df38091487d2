"""The actors of a run, their processes, and when the next instance of an actor is started.

Owns: when an instance is started, also while the one before it is silent and not dead; and that all are dead at the end.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from typing import Any

from ottla.sim.actors.play import Play
from ottla.sim.kernel.loop import SimLoop
from ottla.sim.kernel.network import SimNetwork
from ottla.sim.kernel.process import Process

Maker = Callable[[int, Process], Any]
"""Makes the actor of an instance: its number, its process."""


class Cast:
    def __init__(self, rng: random.Random, loop: SimLoop, network: SimNetwork, play: Play) -> None:
        self.rng = rng
        self.loop = loop
        self.network = network
        self.play = play
        self.processes: list[Process] = []
        self.failed: asyncio.Future[None] = loop.create_future()
        """Set to the exception of the first actor that found a violation or failed."""
        self._supervisors: list[asyncio.Task[None]] = []

    def keep(self, name: str, make: Maker, *, overlaps: bool = False) -> None:
        """Keep one instance of an actor running. `overlaps`: sometimes two."""
        self._supervisors.append(self.loop.create_task(self._supervise(name, make, overlaps)))

    async def _supervise(self, name: str, make: Maker, overlaps: bool) -> None:
        number = 0
        while True:
            ended = self._begin(f"{name}.{number}", make, number)
            number += 1
            # An instance that is silent for a while gets a successor, dead or alive.
            patience_s = self.rng.choice((3.0, 10.0, 30.0)) if overlaps and not self.play.calm else None
            await asyncio.wait([ended], timeout=patience_s)
            await asyncio.sleep(self.rng.random() * 2)
            if number > 60:
                return

    def _begin(self, name: str, make: Maker, number: int) -> asyncio.Future[None]:
        process = Process(name)
        self.processes.append(process)
        ended: asyncio.Future[None] = self.loop.create_future()

        def end() -> None:
            if not ended.done():
                ended.set_result(None)

        process.at_death.append(end)
        actor = make(number, process)
        task = self.loop.create_task(actor.run(), context=process.context())
        task.add_done_callback(lambda done: self._on_end(process, done))
        return ended

    def _on_end(self, process: Process, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and process.alive and not self.failed.done():
            self.failed.set_exception(error)
        process.die()

    async def play_alone(self, name: str, make: Callable[[Process], Any], act: Callable[[Any], Any], limit_s: float) -> Any:
        """Run one actor to its end. TimeoutError if it takes longer than `limit_s`."""
        process = Process(name)
        self.processes.append(process)
        task = self.loop.create_task(act(make(process)), context=process.context())
        done, _ = await asyncio.wait([task], timeout=limit_s)
        process.die()
        if not done:
            raise TimeoutError(f"{name} is not done in {limit_s} s")
        return task.result()

    def dismiss(self) -> None:
        """Kill all actors, wherever they are."""
        for task in self._supervisors:
            task.cancel()
        self._supervisors.clear()
        for process in self.processes:
            process.die()

    def bury(self) -> None:
        self.dismiss()
        for process in self.processes:
            process.bury()
