"""Flushes logs to disk: on a schedule, or at once while producers or a follower wait for it.

The fsync runs in a worker. The recovery point advances only after it has returned.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from ottla.broker.replicas.disk_work import DiskWork, cancel_all
from ottla.broker.replicas.partition import Partition
from ottla.metrics.histogram import TIME_BOUNDS_S, Histogram
from ottla.ports import Clock
from ottla.storage.config import INT64_MAX


class Flusher:
    def __init__(self, clock: Clock, disk_work: DiskWork) -> None:
        self._clock = clock
        self._disk_work = disk_work
        self._tasks: set[asyncio.Task[None]] = set()
        self._requested: dict[Partition, None] = {}
        """Partitions with a newly sealed segment."""
        self.took_s = Histogram(TIME_BOUNDS_S)
        """How long flushes of logs took."""

    async def stop(self) -> None:
        await cancel_all(self._tasks)

    def request(self, partition: Partition) -> None:
        """Flush soon: a segment was sealed."""
        self._requested[partition] = None

    def forget(self, partition: Partition) -> None:
        """The replica is gone: its request needs no flush."""
        self._requested.pop(partition, None)

    async def flush_due(self, partitions: Iterable[Partition]) -> None:
        """Flush the partitions whose flush.ms has passed, and those with a newly sealed segment (F14)."""
        now_ms = self._clock.now_ms()
        due, self._requested = self._requested, {}
        for partition in partitions:
            if partition.log.config.flush_ms != INT64_MAX and not partition.is_offline and partition.log.due_to_flush(now_ms):
                due[partition] = None
        for partition in due:
            await self.flush(partition)

    def flush_now(self, partition: Partition) -> None:
        """Flush for producers that wait (flush.messages), until nothing waits any more."""
        task = asyncio.get_running_loop().create_task(self._flush_held(partition))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _flush_held(self, partition: Partition) -> None:
        await self.flush(partition)
        while partition.flush_ended():
            await self.flush(partition)

    async def flush(self, partition: Partition) -> None:
        log = partition.log
        if partition.is_offline or log.closed:
            return
        try:
            plan = log.flushes.plan()
        except OSError as error:
            self._disk_work.directory_failed(partition.data_dir, error)
            return
        began = self._clock.monotonic()
        if plan is not None and await self._disk_work.run(partition.data_dir, plan.run):
            self.took_s.add(self._clock.monotonic() - began)
            log.flushes.completed(plan, self._clock.now_ms())
