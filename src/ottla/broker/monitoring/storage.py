"""Data directories, flushes and compaction."""

from __future__ import annotations

from collections.abc import Iterator

from ottla.broker.replicas.cleaner import Cleaner
from ottla.broker.replicas.flusher import Flusher
from ottla.broker.replicas.partitions import Partitions
from ottla.metrics.family import Distribution, Family, family, quantile_families, single
from ottla.metrics.table import METRICS
from ottla.ports import Disk, World
from ottla.storage.log import Log


class StorageCollector:
    def __init__(self, world: World, partitions: Partitions, flusher: Flusher, cleaner: Cleaner) -> None:
        self._world = world
        self._partitions = partitions
        self._flusher = flusher
        self._cleaner = cleaner
        self._usage: dict[str, tuple[int, int]] = {}
        """(total bytes, free bytes) of the volume of each directory."""

    async def look(self) -> None:
        """Ask for the free space, in a worker: a disk that hangs must not stop the broker."""
        paths = [data_dir.path for data_dir in self._partitions.data_dirs.online()]
        self._usage = await self._world.workers.run(lambda: _usage(self._world.disk, paths))

    def __call__(self) -> Iterator[Family]:
        partitions = self._partitions
        online, offline = [each.path for each in partitions.data_dirs.online()], partitions.data_dirs.offline_paths()
        yield single(METRICS["kafka_log_logmanager_offlinelogdirectorycount"], len(offline))
        states = [((path,), 0) for path in online] + [((path,), 1) for path in offline]
        yield family(METRICS["kafka_log_logmanager_logdirectoryoffline"], states)
        usage = [(path, each) for path, each in self._usage.items() if path in online]
        yield family(METRICS["ottla_log_dir_total_bytes"], [((path,), total) for path, (total, _) in usage])
        yield family(METRICS["ottla_log_dir_free_bytes"], [((path,), free) for path, (_, free) in usage])
        took = self._flusher.took_s
        flushes = Distribution((), took.bounds, took.counts, took.recent(), took.sum)
        yield from quantile_families(METRICS["kafka_log_logflushstats_logflushrateandtimems"], [flushes], 1000)
        yield from self._compaction(online)

    def _compaction(self, online: list[str]) -> Iterator[Family]:
        yield single(METRICS["kafka_log_logcleaner_max_clean_time_secs"], round(self._cleaner.last_pass_s, 3))
        yield single(METRICS["kafka_log_logcleaner_max_compaction_delay_secs"], self._cleaner.overdue_s)
        yield single(METRICS["kafka_log_logcleaner_deadthreadcount"], 0)
        given_up = self._cleaner.uncleanable()
        counts = [((path,), sum(_is_in(log, path, self._partitions) for log in given_up)) for path in online]
        yield family(METRICS["kafka_log_logcleanermanager_uncleanable_partitions_count"], counts)


def _usage(disk: Disk, paths: list[str]) -> dict[str, tuple[int, int]]:
    found: dict[str, tuple[int, int]] = {}
    for path in paths:
        try:
            found[path] = disk.usage(path)
        except OSError:
            pass  # work on the directory finds it offline
    return found


def _is_in(log: Log, path: str, partitions: Partitions) -> bool:
    partition = partitions.find(log.topic_partition)
    return partition is not None and partition.data_dir.path == path
