"""Everything that happens without a request: retention, flushing, checkpoints, removal of files, idle connections; and what those
who ask for something wait for, while others go on: records that are to be flushed first, indexes that were lost.

Owns the rhythm of this work. What blocks (fsync, removing files) runs in the workers; what changes a log runs on the loop. What a
worker has begun is waited for when the broker stops: nobody writes in a directory that is being closed.

1. An OSError takes the directory it came from offline, and no other work stops for it.
2. A recovery point is written down only after the flush it vouches for has returned.
3. Checkpoints that did not change are not written again: an idle broker leaves its disk alone.
4. What a checkpoint says is looked up when it is its turn to be written: no log may have been deleted and made again in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any

from ottla.broker.replicas.cleaner import Cleaner
from ottla.broker.replicas.whole_work import run_whole
from ottla.ports import Disk
from ottla.storage.checkpoint import write_offsets
from ottla.storage.config import INT64_MAX
from ottla.storage.data_dir import OFFSETS_OF
from ottla.storage.names import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.app import Broker
    from ottla.broker.replicas.partition import Partition
    from ottla.storage.data_dir import DataDir
    from ottla.storage.log import Log
    from ottla.storage.segment import IndexLost, Segment

logger = logging.getLogger(__name__)

FLUSH_TICK_MS = 1000
IDLE_TICK_MS = 5000
REMOVAL_TICK_MS = 1000


class Housekeeping:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._tasks: list[asyncio.Task[None]] = []
        self._asked_for: set[asyncio.Task[None]] = set()
        """Work that somebody waits for."""
        self._building: set[Segment] = set()
        """Segments whose indexes are being built again."""
        self.cleaner = Cleaner(broker, self._write)
        self._written: dict[str, dict[TopicPartition, int]] = {}
        """The checkpoints as they stand on disk, by path."""
        self._writing: dict[str, asyncio.Lock] = {}
        """One writer a file: two workers would share its temporary file, and the second would find it renamed away."""

    def start(self) -> None:
        settings = self._broker.settings
        delay_ms = settings.int("log.initial.task.delay.ms")
        idle_ms = settings.int("connections.max.idle.ms")
        flush_ms = max(1, min(settings.int("log.flush.scheduler.interval.ms"), FLUSH_TICK_MS))
        self._every(settings.int("log.retention.check.interval.ms"), self._retain, first_ms=delay_ms)
        self._every(flush_ms, self._flush)
        self._every(settings.int("log.flush.offset.checkpoint.interval.ms"), self._recovery_points, first_ms=delay_ms)
        self._every(settings.int("log.flush.start.offset.checkpoint.interval.ms"), self._log_starts, first_ms=delay_ms)
        self._every(settings.int("replica.high.watermark.checkpoint.interval.ms"), self._high_watermarks)
        self._every(REMOVAL_TICK_MS, self._remove)
        self._every(settings.int("producer.id.expiration.check.interval.ms"), self._expire_producers)
        if idle_ms >= 0:
            self._every(max(10, min(idle_ms // 4, IDLE_TICK_MS)), self._sweep)
        self.cleaner.start()

    async def stop(self) -> None:
        await self.cleaner.stop()
        tasks = [*self._tasks, *self._asked_for]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._tasks.clear()

    def _every(self, interval_ms: int, work: Callable[[], Awaitable[None]], *, first_ms: int | None = None) -> None:
        async def run() -> None:
            await asyncio.sleep((interval_ms if first_ms is None else min(first_ms, interval_ms)) / 1000)
            while True:
                try:
                    await work()
                except Exception:
                    logger.exception("%s failed; it will be tried again in %d ms", work.__name__.strip("_"), interval_ms)
                # An interval of 0 means as often as possible, which must still leave room for requests.
                await asyncio.sleep(max(interval_ms, 1) / 1000)

        self._tasks.append(asyncio.get_running_loop().create_task(run()))

    async def _sweep(self) -> None:
        self._broker.server.sweep_idle()

    async def _retain(self) -> None:
        """Retention by time and size (F11), and what an idle log has reserved; one partition at a time, so that requests come in
        between."""
        for partition in self._broker.partitions.online():
            if partition.is_offline:
                continue
            try:
                removed = partition.log.apply_retention(self._broker.clock_watch.now_ms())
                partition.log.release_if_idle()
            except OSError as error:
                self._broker.partitions.directory_failed(partition.data_dir, error)
                continue
            except Exception:
                logger.exception("retention of %s failed; that of the others goes on", partition.topic_partition)
                continue
            if removed:
                logger.info(
                    "%s: retention removed %d segments, the log starts at %d now",
                    partition.topic_partition,
                    len(removed),
                    partition.log.log_start_offset,
                )
                await asyncio.sleep(0)

    async def _expire_producers(self) -> None:
        """Producers that have been silent for `producer.id.expiration.ms` are forgotten (I06)."""
        for partition in self._broker.partitions.online():
            producers = partition.log.producers
            if len(producers):
                producers.expire(self._broker.clock_watch.now_ms(), self._broker.settings.int("producer.id.expiration.ms"))
                await asyncio.sleep(0)

    async def _remove(self) -> None:
        """Files of removed segments and directories of deleted partitions, when their delay is over."""
        broker = self._broker
        self._broker.clock_watch.now_ms()  # looked at often, so that a jump is noticed before retention goes by it
        now_ms = int(broker.world.clock.monotonic() * 1000)
        disk = broker.world.disk
        for partition in broker.partitions.online():
            paths = partition.log.take_deleted(now_ms)
            if paths:
                await self._try(partition.data_dir, partial(_remove_files, disk, paths))
        for path in broker.partitions.take_doomed(now_ms):
            try:
                await run_whole(broker.world.workers, partial(disk.remove_tree, path))
            except OSError as error:
                logger.warning("%s could not be removed: %s", path, error)

    async def _flush(self) -> None:
        """Partitions whose flush.ms is over, and those with a freshly sealed segment (F14)."""
        partitions = self._broker.partitions
        now_ms = self._broker.world.clock.now_ms()
        due = dict(partitions.flush_requested)
        partitions.flush_requested.clear()
        for partition in partitions:
            if partition.log.config.flush_ms != INT64_MAX and not partition.is_offline and partition.log.due_to_flush(now_ms):
                due[partition] = None
        for partition in due:
            await self.flush(partition)

    def flush_now(self, partition: Partition) -> None:
        """Producers wait for it, and nobody else does."""
        self._begin(self._flush_held(partition))

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._asked_for.add(task)
        task.add_done_callback(self._asked_for.discard)

    async def _flush_held(self, partition: Partition) -> None:
        await self.flush(partition)
        while partition.flush_ended():
            await self.flush(partition)

    async def flush(self, partition: Partition) -> None:
        """Bring one log to the disk. The fsync runs in a worker; the recovery point moves when it has returned."""
        log = partition.log
        if partition.is_offline or log.closed:
            return
        try:
            plan = log.flush_plan()
        except OSError as error:
            self._broker.partitions.directory_failed(partition.data_dir, error)
            return
        if plan is not None and await self._try(partition.data_dir, plan.run):
            log.flushed(plan, self._broker.world.clock.now_ms())

    def build_index(self, partition: Partition, lost: IndexLost) -> None:
        """Somebody fetches, and cannot before it is done."""
        if lost.segment not in self._building:
            self._building.add(lost.segment)
            self._begin(self._build_index(partition, partition.log, lost))

    async def _build_index(self, partition: Partition, log: Log, lost: IndexLost) -> None:
        segment = lost.segment
        try:
            built = await run_whole(self._broker.world.workers, lost.build)
            if not log.closed and not segment.active and segment in log.segments:
                segment.indexes_rebuilt(built, lost)
        except OSError as error:
            self._broker.partitions.directory_failed(partition.data_dir, error)
        finally:
            self._building.discard(segment)
        self._broker.purgatory.wake(partition.topic_partition)
        self._broker.purgatory.wake(partition)

    async def _recovery_points(self) -> None:
        for data_dir in self._broker.partitions.online_dirs():
            await self._write(data_dir, RECOVERY_POINTS)

    async def write_checkpoints(self, data_dir: DataDir) -> None:
        """All of one directory, now, whatever was written before."""
        for name in (LOG_STARTS, RECOVERY_POINTS, HIGH_WATERMARKS):
            self._written.pop(f"{data_dir.path}/{name}", None)
            await self._write(data_dir, name)

    async def _log_starts(self) -> None:
        for data_dir in self._broker.partitions.online_dirs():
            await self._write(data_dir, LOG_STARTS)

    async def _high_watermarks(self) -> None:
        for data_dir in self._broker.partitions.online_dirs():
            await self._write(data_dir, HIGH_WATERMARKS)

    async def _write(self, data_dir: DataDir, name: str) -> None:
        """What a checkpoint says now. If a log is deleted while a worker writes, and perhaps made again, it is written once more:
        no checkpoint may speak for the new one."""
        path = f"{data_dir.path}/{name}"
        async with self._writing.setdefault(path, asyncio.Lock()):
            deletions = -1
            while data_dir.online and deletions != len(data_dir.deleted):
                deletions = len(data_dir.deleted)
                logs = [partition.log for partition in self._broker.partitions.online() if partition.data_dir is data_dir]
                offsets = OFFSETS_OF[name](logs)
                if self._written.get(path, {}) == offsets:
                    return
                if await self._try(data_dir, partial(write_offsets, self._broker.world.disk, path, offsets)):
                    self._written[path] = offsets

    async def _try(self, data_dir: DataDir, work: Callable[[], object]) -> bool:
        """Run in a worker; an OSError takes the directory offline."""
        try:
            await run_whole(self._broker.world.workers, work)
        except OSError as error:
            self._broker.partitions.directory_failed(data_dir, error)
            return False
        return data_dir.online


def _remove_files(disk: Disk, paths: list[str]) -> None:
    for path in paths:
        try:
            disk.remove(path)
        except FileNotFoundError:
            pass  # the partition was deleted in between, or a second segment of that name was
