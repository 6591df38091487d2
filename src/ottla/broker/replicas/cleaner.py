"""The log cleaner: compacts logs in the background.

Owns the passes that run, their share of the machine, and the uncleanable partitions. `storage.compaction` does the work of a
pass; the cleaner runs it in slices in a worker, swaps the cleaned segments in on the loop, and writes the checkpoint.

1. A worker holds the interpreter for a slice of about a millisecond, then the loop runs. After some slices the loop decides
   whether the pass continues.
2. At most `log.cleaner.threads` passes run at once; together they keep to `log.cleaner.dedupe.buffer.size` and
   `log.cleaner.io.max.bytes.per.second`.
3. An uncleanable log is logged once and skipped until a restart; it keeps serving. An OSError takes its directory offline; a log
   that is truncated, deleted or no longer compacted ends only its own pass.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from ottla.broker.clock_watch import ClockWatch
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.replicas.checkpoints import Checkpoints
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partitions import Partitions
from ottla.broker.replicas.replica_moves import ReplicaMoves
from ottla.metrics import Counters
from ottla.ports import World
from ottla.records.clean_batches import Uncleanable
from ottla.storage.compaction import Abandoned, Compaction, Limits, Progress
from ottla.storage.compaction_plan import LogToClean, dirtiest, find_log_to_clean
from ottla.storage.log import Log
from ottla.storage.names import CLEANED_OFFSETS

logger = logging.getLogger(__name__)

SLICE_S: Final = 0.001
STEP_BYTES: Final = 64 << 10
"""The smallest unit of a slice: some hundred microseconds of compiled code."""
STEPS_MAX: Final = 64
"""Per stretch, of all its slices: some ten milliseconds. A switch to the loop wakes two threads."""
IO_BYTES_MIN: Final = 16 << 10
TURN_PARTITIONS: Final = 100
"""Partitions examined before the loop serves requests."""
LOOK_PARTITIONS: Final = 2000
"""The same, for a mere look at the cleanup policy."""


class Cleaner:
    def __init__(
        self,
        partitions: Partitions,
        metadata: LocalMetadata,
        world: World,
        clock_watch: ClockWatch,
        *,
        checkpoints: Checkpoints,
        moves: ReplicaMoves,
        counters: Counters,
    ) -> None:
        self._partitions = partitions
        self._metadata = metadata
        self._world = world
        self._clock_watch = clock_watch
        self._checkpoints = checkpoints
        self._moves = moves
        self._counters = counters
        self._choosing: asyncio.Task[None] | None = None
        self._passes: dict[Partition, asyncio.Task[None]] = {}
        self._uncleanable: set[Log] = set()
        self.last_pass_s = 0.0
        """How long the pass took that ended last."""
        self._changed = asyncio.Event()
        self._io_free_at = 0.0
        """Loop time at which the bytes read and written so far are within the rate."""
        self._stopping = False

    def start(self) -> None:
        if self._metadata.settings.bool("log.cleaner.enable"):
            self._choosing = asyncio.get_running_loop().create_task(self._choose())

    async def stop(self) -> None:
        """Waits until the passes have ended: nobody works on a directory that is being closed."""
        self._stopping = True
        if self._choosing is not None:
            self._choosing.cancel()
            await asyncio.gather(self._choosing, return_exceptions=True)
        await asyncio.gather(*self._passes.values(), return_exceptions=True)

    async def _choose(self) -> None:
        """Start passes while there are logs that need one."""
        while True:
            settings = self._metadata.settings
            if len(self._passes) >= settings.int("log.cleaner.threads"):
                if self._passes:
                    await asyncio.wait(self._passes.values(), return_when=asyncio.FIRST_COMPLETED)
                else:
                    await self._pause()
                continue
            try:
                found = await self._find()
            except Exception:
                logger.exception("Log cleaner could not select a log, retrying")
                found = None
            if found is None:
                await self._pause()
                continue
            partition, dirt = found
            task = asyncio.get_running_loop().create_task(self._clean(partition, dirt))
            self._passes[partition] = task
            task.add_done_callback(lambda _, partition=partition: self._passes.pop(partition, None))  # type: ignore[misc]

    def uncleanable(self) -> list[Log]:
        """The logs that are skipped until the broker restarts."""
        return [log for log in self._uncleanable if not log.closed]

    def settings_changed(self) -> None:
        """End the pause, whose length the old settings gave."""
        self._changed.set()

    async def _pause(self) -> None:
        self._changed.clear()
        # 0 means as often as possible, which must still leave time for requests.
        pause_ms = max(self._metadata.settings.int("log.cleaner.backoff.ms"), 10)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._changed.wait(), pause_ms / 1000)

    async def _find(self) -> tuple[Partition, LogToClean] | None:
        """The dirtiest log that is due."""
        self._uncleanable = {log for log in self._uncleanable if not log.closed}
        now_ms = self._clock_watch.now_ms()
        found: dict[Log, tuple[Partition, LogToClean]] = {}
        for number, partition in enumerate(await self._compacted(), 1):
            if number % TURN_PARTITIONS == 0:
                await asyncio.sleep(0)
            log = partition.log
            if not log.config.compacted or log.closed or partition.is_offline:
                continue
            if partition in self._passes or log in self._uncleanable:
                continue
            if self._moves.target_of(partition.topic_partition) is not None:
                continue  # its copy would have to start over
            try:
                found[log] = (partition, find_log_to_clean(log, log.last_stable_offset, now_ms))
            except OSError as error:
                self._partitions.directory_failed(partition.data_dir, error)
            except Exception as error:
                self._set_aside(partition, error)
        best = dirtiest(dirt for _, dirt in found.values())
        if best is None or best.log.closed:
            return None
        return found[best.log]

    async def _compacted(self) -> list[Partition]:
        """Mostly a few of thousands: the internal topics."""
        partitions = list(self._partitions)
        found: list[Partition] = []
        for first in range(0, len(partitions), LOOK_PARTITIONS):
            if first:
                await asyncio.sleep(0)
            found += [each for each in partitions[first : first + LOOK_PARTITIONS] if each.log.config.compacted]
        return found

    # One pass

    async def _clean(self, partition: Partition, dirt: LogToClean) -> None:
        world = self._world
        began_s = world.clock.monotonic()
        if dirt.log.closed:
            return
        try:
            compaction = Compaction(world.disk, dirt, self._limits(), self._clock_watch.now_ms())
        except OSError as error:
            self._partitions.directory_failed(partition.data_dir, error)
            return
        try:
            await self._work(partition, compaction)
        except Abandoned as reason:
            logger.info("Aborted compaction of %s: %s", partition.topic_partition, reason)
        except OSError as error:
            if self._is_current(partition, compaction):
                self._partitions.directory_failed(partition.data_dir, error)
        except Exception as error:
            self._set_aside(partition, error)
        else:
            self._tell(partition, compaction, dirt, world.clock.monotonic() - began_s)
            await self._checkpoints.write(partition.data_dir, CLEANED_OFFSETS)
            return
        if partition.data_dir.online:
            try:
                compaction.abandon()
            except OSError as error:
                logger.warning(
                    "Could not remove temporary files of the compaction of %s before the next start: %s",
                    partition.topic_partition,
                    error,
                )

    async def _work(self, partition: Partition, compaction: Compaction) -> None:
        while True:
            progress = await self._world.workers.run(lambda: self._stretch(compaction))
            if self._stopping or partition.is_offline:
                raise Abandoned("the broker is stopping or the data directory is offline")
            compaction.check()
            if progress.replacement is not None:
                compaction.swap(progress.replacement)
            if progress.done:
                partition.log.cleaned_offset = compaction.cleaned_offset
                return
            await self._throttle(progress.io_bytes)

    def _stretch(self, compaction: Compaction) -> Progress:
        """In a worker: some slices of work. Compiled code does not release the interpreter by itself."""
        clock, workers = self._world.clock, self._world.workers
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
        """Keep all passes together to `log.cleaner.io.max.bytes.per.second`."""
        loop = asyncio.get_running_loop()
        rate = self._metadata.settings.float("log.cleaner.io.max.bytes.per.second")
        now_s = loop.time()
        self._io_free_at = max(self._io_free_at, now_s) + io_bytes / max(rate, 1.0)
        if self._io_free_at - now_s > SLICE_S:
            await asyncio.sleep(self._io_free_at - now_s)

    def _limits(self) -> Limits:
        settings = self._metadata.settings
        share = max(settings.int("log.cleaner.threads"), 1)
        return Limits(
            dedupe_bytes=settings.int("log.cleaner.dedupe.buffer.size") // share,
            dedupe_load_factor=settings.float("log.cleaner.io.buffer.load.factor"),
            io_bytes=max(settings.int("log.cleaner.io.buffer.size") // share // 2, IO_BYTES_MIN),
            producer_expiration_ms=settings.int("producer.id.expiration.ms"),
        )

    def _is_current(self, partition: Partition, compaction: Compaction) -> bool:
        """Whether an OSError is a disk failure: a missing file of a deleted log or segment is not."""
        if partition.is_offline:
            return False
        try:
            compaction.check()
        except Abandoned as reason:
            logger.info("Aborted compaction of %s: %s", partition.topic_partition, reason)
            return False
        return True

    def _set_aside(self, partition: Partition, error: Exception) -> None:
        self._uncleanable.add(partition.log)
        self._counters.add("cleaner_uncleanable_partitions")
        logger.warning(
            "%s cannot be compacted; the log cleaner skips it until the broker restarts: %s",
            partition.topic_partition,
            error,
            exc_info=None if isinstance(error, Uncleanable) else error,
        )

    def _tell(self, partition: Partition, compaction: Compaction, dirt: LogToClean, seconds: float) -> None:
        self.last_pass_s = seconds
        account = compaction.account
        counters = self._counters
        counters.add("cleaner_passes")
        counters.add("cleaner_bytes_read", account.bytes_indexed + account.bytes_read)
        counters.add("cleaner_bytes_written", account.bytes_written)
        logger.info(
            "Compacted %s from offset %d to %d in %.1f s: %d keys, kept %d of %d records, %d of %d bytes, %d of %d segments%s",
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
            "; the dedupe buffer was full" if account.table_full else "",
        )
        if account.keyless:
            logger.warning("Compaction of %s dropped %d records without a key", partition.topic_partition, account.keyless)
