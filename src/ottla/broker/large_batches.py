"""Batches that unpack to megabytes are checked in a worker, one at a time: a few kilobytes may unpack to a thousand times as
much, and nobody else shall wait for them (F23).

Owns the turn, and the count of bytes that wait for it. So however many such batches there are, they take one thread, the memory
of one, and a bounded amount of what was sent.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final

from ottla.ports import World
from ottla.records.validate import Checked, Rules, check
from ottla.types import Buffer

WAITING_BYTES_MAX: Final = 64 << 20
"""As they were sent. What comes then is to be sent again."""


class LargeBatches:
    def __init__(self, world: World) -> None:
        self.waiting_bytes = 0
        self._world = world
        self._turn = asyncio.Lock()

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
            work = partial(check, records, rules, now_ms, let_others_run=workers.let_others_run)
            checking = asyncio.ensure_future(workers.run(work))
            try:
                return await asyncio.shield(checking)
            except asyncio.CancelledError:
                # Whoever asked is gone; its turn lasts as long as its thread is busy.
                await asyncio.wait([checking])
                if not checking.cancelled():
                    checking.exception()  # nobody else will look at it
                raise
