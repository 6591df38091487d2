"""Runs the passes of the log cleaner: in slices in a worker, the cleaned segments swapped in on the loop.

Owns the share of the machine that passes get. `storage.compaction` does the work of a pass.

1. A worker holds the interpreter for a slice of about a millisecond, then the loop runs. After some slices the loop decides
   whether the pass continues.
2. All passes together keep to `log.cleaner.dedupe.buffer.size` and `log.cleaner.io.max.bytes.per.second`.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ottla.broker.clock_watch import ClockWatch
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.replicas.partition import Partition
from ottla.metrics import Counters
from ottla.ports import World
from ottla.storage.compaction import Abandoned, Compaction, Limits, Progress
from ottla.storage.compaction_plan import LogToClean

logger = logging.getLogger(__name__)

SLICE_S: Final = 0.001
STEP_BYTES: Final = 64 << 10
"""The smallest unit of a slice: some hundred microseconds of compiled code."""
STEPS_MAX: Final = 64
"""Per stretch, of all its slices: some ten milliseconds. A switch to the loop wakes two threads."""
IO_BYTES_MIN: Final = 16 << 10


class Compactor:
    def __init__(self, metadata: LocalMetadata, world: World, clock_watch: ClockWatch, counters: Counters) -> None:
        self._metadata = metadata
        self._world = world
        self._clock_watch = clock_watch
        self._counters = counters
        self._io_free_at = 0.0
        """Loop time at which the bytes read and written so far are within the rate."""
        self._stopping = False
        self.last_pass_s = 0.0
        """How long the pass took that ended last."""

    def stop(self) -> None:
        """End the passes at their next slice."""
        self._stopping = True

    async def run(self, partition: Partition, dirt: LogToClean) -> bool:
        """One pass. False: it ended early, because the log or its directory is gone or the broker stops. An exception says that
        the log is uncleanable."""
        began_s = self._world.clock.monotonic()
        try:
            compaction = Compaction(self._world.disk, dirt, self._limits(), self._clock_watch.now_ms())
        except OSError as error:
            partition.failed(error)
            return False
        try:
            await self._work(partition, compaction)
        except Abandoned as reason:
            _log_end(partition, reason)
        except OSError as error:
            if _is_current(partition, compaction):
                partition.failed(error)
        except Exception:
            _abandon(partition, compaction)
            raise
        else:
            self._tell(partition, compaction, dirt, self._world.clock.monotonic() - began_s)
            return True
        _abandon(partition, compaction)
        return False

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


def _is_current(partition: Partition, compaction: Compaction) -> bool:
    """Whether an OSError is a disk failure: a missing file of a deleted log or segment is not."""
    if partition.is_offline:
        return False
    try:
        compaction.check()
    except Abandoned as reason:
        _log_end(partition, reason)
        return False
    return True


def _log_end(partition: Partition, reason: Abandoned) -> None:
    logger.info("Aborted compaction of %s: %s", partition.topic_partition, reason)


def _abandon(partition: Partition, compaction: Compaction) -> None:
    if partition.data_dir.online:
        try:
            compaction.abandon()
        except OSError as error:
            logger.warning(
                "Could not remove temporary files of the compaction of %s before the next start: %s",
                partition.topic_partition,
                error,
            )
