"""Compaction in the background: which log next, how fast, and in whose time.

Owns: the passes that run, their share of the machine, and the list of partitions that could not be cleaned. What a pass does is
`storage.compaction`'s; this room gives it slices of a worker, swaps its results in on the loop, and writes the checkpoint.

1. A worker holds the interpreter for a slice of about a millisecond, then the loop has its turn: requests wait for no more.
   It is the loop's to say after some slices whether the pass goes on.
2. At most `log.cleaner.threads` passes run at once; together they hold no more than `log.cleaner.dedupe.buffer.size` of keys and
   keep to `log.cleaner.io.max.bytes.per.second`.
3. A log that cannot be cleaned is set aside and said once; it serves on, and grows. An OSError takes its directory offline; a log
   that is cut, deleted or no longer compacted ends its pass and nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final

from ottla.records.clean_batches import Uncleanable
from ottla.storage.compaction import Abandoned, Compaction, Limits, Progress
from ottla.storage.compaction_plan import Dirt, filthiest, find_dirt
from ottla.storage.names import CLEANED_OFFSETS

if TYPE_CHECKING:
    from ottla.broker.app import Broker
    from ottla.broker.replicas.partition import Partition
    from ottla.storage.data_dir import DataDir
    from ottla.storage.log import Log

logger = logging.getLogger(__name__)

SLICE_S: Final = 0.001
STEP_BYTES: Final = 64 << 10
"""The smallest piece of a slice; some hundred microseconds of compiled code."""
STEPS_MAX: Final = 64
"""Of a stretch, all slices together; some ten milliseconds. To ask the loop costs two threads that wake up."""
IO_BYTES_MIN: Final = 16 << 10
TURN_PARTITIONS: Final = 100
"""Partitions looked at before requests get their turn."""
LOOK_PARTITIONS: Final = 2000
"""The same, where nothing is asked but whether they are compacted."""

WriteCheckpoint = Callable[["DataDir", str], Awaitable[None]]


class Cleaner:
    def __init__(self, broker: Broker, write_checkpoint: WriteCheckpoint) -> None:
        self._broker = broker
        self._write_checkpoint = write_checkpoint
        self._choosing: asyncio.Task[None] | None = None
        self._passes: dict[Partition, asyncio.Task[None]] = {}
        self._uncleanable: set[Log] = set()
        self._changed = asyncio.Event()
        self._io_free_at = 0.0
        """When the bytes taken so far are paid for."""
        self._stopping = False

    def start(self) -> None:
        if self._broker.settings.bool("log.cleaner.enable"):
            self._choosing = asyncio.get_running_loop().create_task(self._choose())

    async def stop(self) -> None:
        """Passes end after their slice: nobody works on a directory that is being closed."""
        self._stopping = True
        if self._choosing is not None:
            self._choosing.cancel()
            await asyncio.gather(self._choosing, return_exceptions=True)
        await asyncio.gather(*self._passes.values(), return_exceptions=True)

    async def _choose(self) -> None:
        """Start passes while there are logs that need one."""
        while True:
            settings = self._broker.settings
            if len(self._passes) >= settings.int("log.cleaner.threads"):
                if self._passes:
                    await asyncio.wait(self._passes.values(), return_when=asyncio.FIRST_COMPLETED)
                else:
                    await self._pause()
                continue
            try:
                found = await self._find()
            except Exception:
                logger.exception("the cleaner cannot choose a log; it will try again")
                found = None
            if found is None:
                await self._pause()
                continue
            partition, dirt = found
            task = asyncio.get_running_loop().create_task(self._clean(partition, dirt))
            self._passes[partition] = task
            task.add_done_callback(lambda _, partition=partition: self._passes.pop(partition, None))  # type: ignore[misc]

    def settings_changed(self) -> None:
        """Look at once, by the new settings: the pause that has begun is of the old ones."""
        self._changed.set()

    async def _pause(self) -> None:
        self._changed.clear()
        # 0 means as often as possible, which must still leave room for requests
        pause_ms = max(self._broker.settings.int("log.cleaner.backoff.ms"), 10)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), pause_ms / 1000)

    async def _find(self) -> tuple[Partition, Dirt] | None:
        """The dirtiest log of those that are due."""
        self._uncleanable = {log for log in self._uncleanable if not log.closed}
        now_ms = self._broker.clock_watch.now_ms()
        found: dict[Log, tuple[Partition, Dirt]] = {}
        for number, partition in enumerate(await self._compacted(), 1):
            if number % TURN_PARTITIONS == 0:
                await asyncio.sleep(0)
            log = partition.log
            if not log.config.compacted or log.closed or partition.is_offline:
                continue
            if partition in self._passes or log in self._uncleanable:
                continue
            if self._broker.moves.target_of(partition.topic_partition) is not None:
                continue  # a copy of it would have to begin anew
            try:
                found[log] = (partition, find_dirt(log, partition.last_stable_offset, now_ms))
            except OSError as error:
                self._broker.partitions.directory_failed(partition.data_dir, error)
            except Exception as error:
                self._set_aside(partition, error)
        best = filthiest(dirt for _, dirt in found.values())
        if best is None or best.log.closed:
            return None
        return found[best.log]

    async def _compacted(self) -> list[Partition]:
        """Of thousands of partitions mostly a few, those of groups and transactions: the others cost a look each."""
        partitions = list(self._broker.partitions)
        found: list[Partition] = []
        for first in range(0, len(partitions), LOOK_PARTITIONS):
            if first:
                await asyncio.sleep(0)
            found += [each for each in partitions[first : first + LOOK_PARTITIONS] if each.log.config.compacted]
        return found

    # One pass

    async def _clean(self, partition: Partition, dirt: Dirt) -> None:
        world = self._broker.world
        began_s = world.clock.monotonic()
        if dirt.log.closed:
            return
        try:
            compaction = Compaction(world.disk, dirt, self._limits(), self._broker.clock_watch.now_ms())
        except OSError as error:
            self._broker.partitions.directory_failed(partition.data_dir, error)
            return
        try:
            await self._work(partition, compaction)
        except Abandoned as reason:
            logger.info("%s: compaction given up, %s", partition.topic_partition, reason)
        except OSError as error:
            if self._is_current(partition, compaction):
                self._broker.partitions.directory_failed(partition.data_dir, error)
        except Exception as error:
            self._set_aside(partition, error)
        else:
            self._tell(partition, compaction, dirt, world.clock.monotonic() - began_s)
            await self._write_checkpoint(partition.data_dir, CLEANED_OFFSETS)
            return
        if partition.data_dir.online:
            try:
                compaction.abandon()
            except OSError as error:
                logger.warning("%s: remains of a compaction stay until the next start: %s", partition.topic_partition, error)

    async def _work(self, partition: Partition, compaction: Compaction) -> None:
        world = self._broker.world
        while True:
            progress = await world.workers.run(lambda: self._stretch(compaction))
            if self._stopping or partition.is_offline:
                raise Abandoned("the broker stops or the directory is lost")
            compaction.check()
            if progress.replacement is not None:
                compaction.swap(progress.replacement)
            if progress.done:
                partition.log.cleaned_offset = compaction.cleaned_offset
                return
            await self._throttle(progress.io_bytes)

    def _stretch(self, compaction: Compaction) -> Progress:
        """In a worker: some slices of work. Compiled code does not let go of the interpreter by itself."""
        clock, workers = self._broker.world.clock, self._broker.world.workers
        end_s = clock.monotonic() + SLICE_S
        io_bytes = 0
        for _ in range(STEPS_MAX):
            progress = compaction.advance(STEP_BYTES)
            io_bytes += progress.io_bytes
            if progress.replacement is not None or progress.done:
                return Progress(io_bytes, progress.replacement, progress.done)
            if self._stopping:
                break
            if clock.monotonic() >= end_s:
                workers.let_others_run()
                end_s = clock.monotonic() + SLICE_S
        return Progress(io_bytes)

    async def _throttle(self, io_bytes: int) -> None:
        """All passes together share what they may read and write."""
        loop = asyncio.get_running_loop()
        rate = self._broker.settings.float("log.cleaner.io.max.bytes.per.second")
        now_s = loop.time()
        self._io_free_at = max(self._io_free_at, now_s) + io_bytes / max(rate, 1.0)
        if self._io_free_at - now_s > SLICE_S:
            await asyncio.sleep(self._io_free_at - now_s)

    def _limits(self) -> Limits:
        settings = self._broker.settings
        share = max(settings.int("log.cleaner.threads"), 1)
        return Limits(
            dedupe_bytes=settings.int("log.cleaner.dedupe.buffer.size") // share,
            dedupe_load_factor=settings.float("log.cleaner.io.buffer.load.factor"),
            io_bytes=max(settings.int("log.cleaner.io.buffer.size") // share // 2, IO_BYTES_MIN),
            producer_expiration_ms=settings.int("producer.id.expiration.ms"),
        )

    def _is_current(self, partition: Partition, compaction: Compaction) -> bool:
        """Whether a failure is the disk's: a file that is gone because its log or segment is gone is none."""
        if partition.is_offline:
            return False
        try:
            compaction.check()
        except Abandoned as reason:
            logger.info("%s: compaction given up, %s", partition.topic_partition, reason)
            return False
        return True

    def _set_aside(self, partition: Partition, error: Exception) -> None:
        self._uncleanable.add(partition.log)
        self._broker.counters.add("cleaner_uncleanable_partitions")
        logger.warning(
            "%s cannot be compacted and is left alone until the broker starts again: %s",
            partition.topic_partition,
            error,
            exc_info=None if isinstance(error, Uncleanable) else error,
        )

    def _tell(self, partition: Partition, compaction: Compaction, dirt: Dirt, seconds: float) -> None:
        account = compaction.account
        counters = self._broker.counters
        counters.add("cleaner_passes")
        counters.add("cleaner_bytes_read", account.bytes_indexed + account.bytes_read)
        counters.add("cleaner_bytes_written", account.bytes_written)
        logger.info(
            "%s: compacted offsets %d to %d in %.1f s: %d keys, %d of %d records and %d of %d bytes left, %d segments of %d%s",
            partition.topic_partition,
            dirt.first_dirty_offset,
            compaction.cleaned_offset,
            seconds,
            account.keys,
            account.records_retained,
            account.records_read,
            account.bytes_written,
            account.bytes_read,
            account.segments_after,
            account.segments_before,
            "; the key table was full" if account.table_full else "",
        )
        if account.keyless:
            logger.warning("%s: %d records without a key were dropped", partition.topic_partition, account.keyless)
