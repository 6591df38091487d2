"""Offset checkpoints of the data directories: recovery points, log start offsets, high watermarks, cleaned offsets.

1. A checkpoint that did not change is not written again: an idle broker does not touch its disk.
2. The offsets are read when the file is written: no log may have been deleted and created again in between.
"""

from __future__ import annotations

import asyncio
from functools import partial

from ottla.broker.replicas.disk_work import DiskWork
from ottla.broker.replicas.partitions import Partitions
from ottla.ports import Disk
from ottla.storage.checkpoint import write_offsets
from ottla.storage.data_dir import OFFSETS_OF, DataDir
from ottla.storage.names import HIGH_WATERMARKS, LOG_STARTS, RECOVERY_POINTS
from ottla.types import TopicPartition


class Checkpoints:
    def __init__(self, partitions: Partitions, disk: Disk, disk_work: DiskWork) -> None:
        self._partitions = partitions
        self._disk = disk
        self._disk_work = disk_work
        self._written: dict[str, dict[TopicPartition, int]] = {}
        """The contents of the files, by path."""
        self._locks: dict[str, asyncio.Lock] = {}
        """One writer per file: two would share its temporary file, and the second would find it renamed away."""

    async def write_all(self, data_dir: DataDir) -> None:
        """Write all checkpoints of one directory now, also unchanged ones."""
        for name in (LOG_STARTS, RECOVERY_POINTS, HIGH_WATERMARKS):
            self._written.pop(f"{data_dir.path}/{name}", None)
            await self.write(data_dir, name)

    async def write_recovery_points(self) -> None:
        await self._write_everywhere(RECOVERY_POINTS)

    async def write_log_starts(self) -> None:
        await self._write_everywhere(LOG_STARTS)

    async def write_high_watermarks(self) -> None:
        await self._write_everywhere(HIGH_WATERMARKS)

    async def _write_everywhere(self, name: str) -> None:
        for data_dir in self._partitions.data_dirs.online():
            await self.write(data_dir, name)

    async def write(self, data_dir: DataDir, name: str) -> None:
        """Write one checkpoint, and again if a log is deleted meanwhile: the file must not speak for a new log of that name."""
        path = f"{data_dir.path}/{name}"
        async with self._locks.setdefault(path, asyncio.Lock()):
            deletions = -1
            while data_dir.online and deletions != len(data_dir.deleted):
                deletions = len(data_dir.deleted)
                logs = [partition.log for partition in self._partitions.online() if partition.data_dir is data_dir]
                offsets = OFFSETS_OF[name](logs)
                if self._written.get(path, {}) == offsets:
                    return
                if await self._disk_work.run(data_dir, partial(write_offsets, self._disk, path, offsets)):
                    self._written[path] = offsets
