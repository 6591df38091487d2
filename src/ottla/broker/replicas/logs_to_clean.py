"""Which log the cleaner compacts next, and which ones it cannot compact.

An uncleanable log is logged once and skipped until a restart; it keeps serving. An OSError takes its directory offline.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Container
from typing import Final

from ottla.broker.clock_watch import ClockWatch
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partitions import Partitions
from ottla.broker.replicas.replica_moves import ReplicaMoves
from ottla.metrics import Counters
from ottla.records.clean_batches import Uncleanable
from ottla.storage.compaction_plan import LogToClean, dirtiest, find_log_to_clean
from ottla.storage.log import Log

logger = logging.getLogger(__name__)

TURN_PARTITIONS: Final = 100
"""Partitions examined before the loop serves requests."""
LOOK_PARTITIONS: Final = 2000
"""The same, for a mere look at the cleanup policy."""


class LogsToClean:
    def __init__(self, partitions: Partitions, moves: ReplicaMoves, clock_watch: ClockWatch, counters: Counters) -> None:
        self._partitions = partitions
        self._moves = moves
        self._clock_watch = clock_watch
        self._counters = counters
        self._uncleanable: set[Log] = set()
        self.overdue_ms = 0
        """How much longer than `max.compaction.lag.ms` the oldest records waited, when a log was last chosen."""

    async def next(self, busy: Container[Partition]) -> tuple[Partition, LogToClean] | None:
        """The dirtiest log that is due, except those of the `busy` partitions."""
        self._uncleanable = {log for log in self._uncleanable if not log.closed}
        now_ms = self._clock_watch.now_ms()
        found: dict[Log, tuple[Partition, LogToClean]] = {}
        for number, partition in enumerate(await self._compacted(), 1):
            if number % TURN_PARTITIONS == 0:
                await asyncio.sleep(0)
            log = partition.log
            if not log.config.compacted or log.closed or partition.is_offline:
                continue
            if partition in busy or log in self._uncleanable:
                continue
            if self._moves.target_of(partition.topic_partition) is not None:
                continue  # its copy would have to start over
            try:
                found[log] = (partition, find_log_to_clean(log, log.last_stable_offset, now_ms))
            except OSError as error:
                partition.failed(error)
            except Exception as error:
                self.set_aside(partition, error)
        self.overdue_ms = max((dirt.overdue_ms for _, dirt in found.values()), default=0)
        best = dirtiest(dirt for _, dirt in found.values())
        if best is None or best.log.closed:
            return None
        return found[best.log]

    async def _compacted(self) -> list[Partition]:
        """The partitions with cleanup.policy=compact. Mostly these are a few of thousands, the internal topics."""
        partitions = list(self._partitions)
        found: list[Partition] = []
        for first in range(0, len(partitions), LOOK_PARTITIONS):
            if first:
                await asyncio.sleep(0)
            found += [each for each in partitions[first : first + LOOK_PARTITIONS] if each.log.config.compacted]
        return found

    def uncleanable(self) -> list[Log]:
        """The logs that are skipped until the broker restarts."""
        return [log for log in self._uncleanable if not log.closed]

    def set_aside(self, partition: Partition, error: Exception) -> None:
        """The log is uncleanable."""
        self._uncleanable.add(partition.log)
        self._counters.add("cleaner_uncleanable_partitions")
        logger.warning(
            "%s cannot be compacted; the log cleaner skips it until the broker restarts: %s",
            partition.topic_partition,
            error,
            exc_info=None if isinstance(error, Uncleanable) else error,
        )
