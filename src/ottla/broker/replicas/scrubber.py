"""The scrubber: reads closed segments in the background and checks their CRCs (`log.scrub.bytes.per.second`).

A disk may return other bytes than were written. Without a check only the client that reads them finds out, perhaps when no other
replica has the records any more. The scrubber tells it, and changes nothing: `ottla log repair` replaces a damaged segment.

1. A worker checks some batches at a time; between two turns the loop runs, and the rate is kept.
2. One round checks each closed segment once. A round begins `ROUND_S` after the last one began, or when that has ended.
3. What is deleted, truncated or compacted meanwhile is not reported.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from ottla.broker.replicas.disk_work import cancel_all, run_to_end
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partitions import Partitions
from ottla.metrics import Counters
from ottla.ports import Workers
from ottla.storage.names import LOG
from ottla.storage.scrub import STEP_BYTES, SegmentCheck
from ottla.storage.segment import Segment

logger = logging.getLogger(__name__)

ROUND_S: Final = 3600.0
TURN_BYTES_MAX: Final = 1 << 20
TURNS_PER_S: Final = 10


class Scrubber:
    def __init__(self, partitions: Partitions, workers: Workers, counters: Counters) -> None:
        self._partitions = partitions
        self._workers = workers
        self._counters = counters
        self._task: asyncio.Task[None] | None = None
        self._bytes_per_second = 0
        self._changed = asyncio.Event()

    def configure(self, bytes_per_second: int) -> None:
        """0: off."""
        self._bytes_per_second = bytes_per_second
        self._changed.set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            await cancel_all([self._task])

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            if not self._bytes_per_second:
                self._changed.clear()
                await self._changed.wait()
                continue
            began = loop.time()
            await self._round()
            await asyncio.sleep(max(0.0, began + ROUND_S - loop.time()))

    async def _round(self) -> None:
        for partition in list(self._partitions):
            for segment in partition.log.segments[:-1]:
                if not self._bytes_per_second:
                    return
                if _is_current(partition, segment):
                    try:
                        await self._scrub(partition, segment)
                    except FileNotFoundError:
                        continue  # deleted a moment ago
                    except OSError as error:
                        self._damaged(partition, segment, f"it cannot be read: {error}")

    async def _scrub(self, partition: Partition, segment: Segment) -> None:
        disk, path = segment.files.disk, segment.path(LOG)
        check = await run_to_end(self._workers, lambda: SegmentCheck(disk, path, segment.base_offset, segment.end_offset))
        try:
            while not check.done:
                before = check.bytes
                await run_to_end(self._workers, lambda: self._turn(check))
                self._counters.add("bytes_scrubbed", check.bytes - before)
                if not self._bytes_per_second:
                    return
                await asyncio.sleep((check.bytes - before) / self._bytes_per_second)
        finally:
            check.close()
        self._counters.add("segments_scrubbed")
        if not _is_current(partition, segment):
            return
        for damage in check.damages:
            self._damaged(
                partition,
                segment,
                f"offsets {damage.first_offset} to {damage.end_offset - 1}, positions {damage.position} to "
                f"{damage.end_position - 1}, are no valid batches",
            )

    def _turn(self, check: SegmentCheck) -> None:
        """In a worker."""
        end = check.bytes + min(TURN_BYTES_MAX, max(self._bytes_per_second // TURNS_PER_S, STEP_BYTES))
        while not check.done and check.bytes < end:
            check.step()
            self._workers.let_others_run()

    def _damaged(self, partition: Partition, segment: Segment, what: str) -> None:
        self._counters.add("segment_damages_found")
        logger.error(
            "Segment %s of %s is damaged: %s. Stop this broker and replace them from another replica: `ottla log repair %s`",
            segment.path(LOG),
            partition.topic_partition,
            what,
            partition.log.dir,
        )


def _is_current(partition: Partition, segment: Segment) -> bool:
    log = partition.log
    return not (log.closed or partition.is_offline or segment.active) and segment in log.segments
