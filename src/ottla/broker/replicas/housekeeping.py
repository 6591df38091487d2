"""Periodic work: retention, flushing, checkpoints, removal of files, expiry of producers.

Work that blocks (fsync, removing files) runs in workers; changes of a log run on the loop. `stop` waits for the workers: nobody
writes in a directory that is being closed. An OSError takes its directory offline and does not stop other work.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial

from ottla.broker.clock_watch import ClockWatch
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.replicas.checkpoints import Checkpoints
from ottla.broker.replicas.disk_work import DiskWork, cancel_all, run_to_end
from ottla.broker.replicas.flusher import Flusher
from ottla.broker.replicas.partitions import Partitions
from ottla.ports import Disk, World

logger = logging.getLogger(__name__)

FLUSH_TICK_MS = 1000
REMOVAL_TICK_MS = 1000


class Housekeeping:
    def __init__(self, partitions: Partitions, metadata: LocalMetadata, world: World, clock_watch: ClockWatch) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._world = world
        self._clock_watch = clock_watch
        self._disk_work = DiskWork(world.workers, partitions.data_dirs.fail)
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, flusher: Flusher, checkpoints: Checkpoints) -> None:
        async def flush_due() -> None:
            await flusher.flush_due(self._partitions)

        settings = self._metadata.settings
        delay_ms = settings.int("log.initial.task.delay.ms")
        flush_ms = max(1, min(settings.int("log.flush.scheduler.interval.ms"), FLUSH_TICK_MS))
        recovery_points_ms = settings.int("log.flush.offset.checkpoint.interval.ms")
        log_starts_ms = settings.int("log.flush.start.offset.checkpoint.interval.ms")
        self.every(settings.int("log.retention.check.interval.ms"), self._apply_retention, first_ms=delay_ms)
        self.every(flush_ms, flush_due)
        self.every(recovery_points_ms, checkpoints.write_recovery_points, first_ms=delay_ms)
        self.every(log_starts_ms, checkpoints.write_log_starts, first_ms=delay_ms)
        self.every(settings.int("replica.high.watermark.checkpoint.interval.ms"), checkpoints.write_high_watermarks)
        self.every(REMOVAL_TICK_MS, self.remove_files)
        self.every(settings.int("producer.id.expiration.check.interval.ms"), self._expire_producers)

    async def stop(self) -> None:
        await cancel_all(self._tasks)
        self._tasks.clear()

    def every(self, interval_ms: int, work: Callable[[], Awaitable[None]], *, first_ms: int | None = None) -> None:
        """Run `work` periodically until `stop`."""

        async def run() -> None:
            await asyncio.sleep((interval_ms if first_ms is None else min(first_ms, interval_ms)) / 1000)
            while True:
                try:
                    await work()
                except Exception:
                    logger.exception("Periodic task %s failed, retrying in %d ms", work.__name__.strip("_"), interval_ms)
                # An interval of 0 means as often as possible, which must still leave time for requests.
                await asyncio.sleep(max(interval_ms, 1) / 1000)

        self._tasks.append(asyncio.get_running_loop().create_task(run()))

    async def _apply_retention(self) -> None:
        """Retention by time and size (F11), and release of preallocated space; requests run between partitions."""
        for partition in self._partitions.online():
            if partition.is_offline:
                continue
            try:
                removed = partition.log.apply_retention(self._clock_watch.now_ms())
                partition.log.local.release_if_idle()
            except OSError as error:
                self._partitions.data_dirs.fail(partition.data_dir, error)
                continue
            except Exception:
                logger.exception("Retention of %s failed; other partitions are not affected", partition.topic_partition)
                continue
            if removed:
                logger.info(
                    "Retention deleted %d segments of %s, new log start offset is %d",
                    len(removed),
                    partition.topic_partition,
                    partition.log.log_start_offset,
                )
                await asyncio.sleep(0)

    async def _expire_producers(self) -> None:
        """Forget producers that were idle for `producer.id.expiration.ms` (I06)."""
        for partition in self._partitions.online():
            producers = partition.log.producers
            if len(producers):
                producers.expire(self._clock_watch.now_ms(), self._metadata.settings.int("producer.id.expiration.ms"))
                await asyncio.sleep(0)

    async def remove_files(self) -> None:
        """Remove files of deleted segments and partitions after `file.delete.delay.ms`."""
        self._clock_watch.now_ms()  # called often, so that it notices a clock jump before retention runs
        world = self._world
        now_ms = int(world.clock.monotonic() * 1000)
        for partition in self._partitions.online():
            paths = partition.log.take_deleted(now_ms)
            if paths:
                await self._disk_work.run(partition.data_dir, partial(_remove_files, world.disk, paths))
        for path in self._partitions.logs.take_due_deletions(now_ms):
            try:
                await run_to_end(world.workers, partial(world.disk.remove_tree, path))
            except OSError as error:
                logger.warning("Could not remove %s: %s", path, error)


def _remove_files(disk: Disk, paths: list[str]) -> None:
    for path in paths:
        try:
            disk.remove(path)
        except FileNotFoundError:
            pass  # the partition was deleted meanwhile, or a second segment of that name was
