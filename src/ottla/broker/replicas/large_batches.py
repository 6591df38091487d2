"""Batches that decompress to megabytes are decompressed in a worker, so that no other request waits for them (F23).

Owns two queues of one worker each: one for batches of producers, one for batches that a lookup by timestamp finds in the log.
However many large batches there are, they take two threads and the memory of two decompressed batches. The bytes of batches that
wait for the first queue are limited.
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
"""Compressed bytes that may wait. A producer that sends more gets a retriable error."""


class LargeBatches:
    def __init__(self, world: World) -> None:
        self.waiting_bytes = 0
        self._world = world
        self._turn = asyncio.Lock()
        self._lookup_turn = asyncio.Lock()

    def admit(self, size: int) -> bool:
        """Whether a batch of this size may wait too; a single batch always may. The caller calls `release` afterwards."""
        if self.waiting_bytes and self.waiting_bytes + size > WAITING_BYTES_MAX:
            return False
        self.waiting_bytes += size
        return True

    def release(self, size: int) -> None:
        self.waiting_bytes -= size

    async def check(self, records: Buffer, rules: Rules) -> Checked:
        """Run `records.validate.check` in a worker. Nothing may change the records meanwhile."""
        workers = self._world.workers
        async with self._turn:
            now_ms = self._world.clock.now_ms()
            return await run_to_end(workers, partial(check, records, rules, now_ms, let_others_run=workers.let_others_run))

    async def look(self, look: Look) -> OffsetByTime | None:
        """Finish a lookup by timestamp (`storage.time_lookup.Unfinished`) in a worker."""
        workers = self._world.workers
        async with self._lookup_turn:
            return await run_to_end(workers, partial(look, workers.let_others_run))
