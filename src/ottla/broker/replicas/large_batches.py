"""What unpacks to megabytes is unpacked in a worker, one after the other: a few kilobytes may unpack to a thousand times as much,
and nobody else shall wait for them (F23).

Owns two turns, one for batches that producers send, one for those that a search by time finds in the log, so that neither makes
the other wait; and the count of bytes that wait for the first. So however many such batches there are, they take two threads, the
memory of two, and a bounded amount of what was sent.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from ottla.broker.replicas.disk_work import run_to_end
from ottla.ports import World
from ottla.records.validate import Checked, Rules, check
from ottla.storage.results import OffsetByTime
from ottla.storage.time_lookup import Look
from ottla.types import Buffer

WAITING_BYTES_MAX: Final = 64 << 20
"""As they were sent. What comes then is to be sent again."""


class LargeBatches:
    def __init__(self, world: World) -> None:
        self.waiting_bytes = 0
        self._world = world
        self._turn = asyncio.Lock()
        self._turn_to_look = asyncio.Lock()

    def admit(self, size: int) -> bool:
        """Whether so many bytes may wait as well. The first may in any case. They are to be given back by `release`."""
        if self.waiting_bytes and self.waiting_bytes + size > WAITING_BYTES_MAX:
            return False
        self.waiting_bytes += size
        return True

    def release(self, size: int) -> None:
        self.waiting_bytes -= size

    async def check(self, records: Buffer, rules: Rules) -> Checked:
        """What `records.validate.check` finds. The records must not be anybody else's memory meanwhile."""
        workers = self._world.workers
        async with self._turn:
            now_ms = self._world.clock.now_ms()
            return await run_to_end(workers, partial(check, records, rules, now_ms, let_others_run=workers.let_others_run))

    async def look(self, look: Look) -> OffsetByTime | None:
        """What a search by time left to be done (`storage.time_lookup.Unfinished`)."""
        workers = self._world.workers
        async with self._turn_to_look:
            return await run_to_end(workers, partial(look, workers.let_others_run))
