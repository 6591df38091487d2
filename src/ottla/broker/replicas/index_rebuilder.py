"""Rebuilds lost offset indexes in a worker, while the fetch that needs one waits in the purgatory."""

from __future__ import annotations

import asyncio

from ottla.broker.network.purgatory import Purgatory
from ottla.broker.replicas.disk_work import DiskWork, cancel_all, run_to_end
from ottla.broker.replicas.partition import Partition
from ottla.storage.log import Log
from ottla.storage.segment import IndexLost, Segment


class IndexRebuilder:
    def __init__(self, disk_work: DiskWork, purgatory: Purgatory) -> None:
        self._disk_work = disk_work
        self._purgatory = purgatory
        self.building: dict[Segment, asyncio.Task[None]] = {}

    async def stop(self) -> None:
        await cancel_all(self.building.values())

    def build(self, partition: Partition, lost: IndexLost) -> None:
        if lost.segment not in self.building:
            task = asyncio.get_running_loop().create_task(self._build(partition, partition.log, lost))
            self.building[lost.segment] = task

    async def _build(self, partition: Partition, log: Log, lost: IndexLost) -> None:
        segment = lost.segment
        try:
            built = await run_to_end(self._disk_work.workers, lost.build)
            if not log.closed and not segment.active and segment in log.segments:
                segment.indexes_rebuilt(built, lost)
        except OSError as error:
            self._disk_work.directory_failed(partition.data_dir, error)
        finally:
            self.building.pop(segment, None)
        self._purgatory.wake(partition.topic_partition)
        self._purgatory.wake(partition)
