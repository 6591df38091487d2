"""The data directories of a broker, from start to stop: open and lock, load the logs, close.

A directory that fails at the start is offline with its partitions, unless it is the last one.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from ottla.broker.startup_error import StartupError
from ottla.cluster.image import ClusterImage
from ottla.cluster.requests import FoundTopic
from ottla.cluster.settings import BrokerSettings
from ottla.ports import World
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir, DataDirRefused, find_leftover_copies
from ottla.storage.log import Log
from ottla.storage.names import META_PROPERTIES, parse_partition_dir
from ottla.storage.segment_cache import SegmentCache
from ottla.types import ZERO_UUID

logger = logging.getLogger(__name__)

_NOTICES_MAX = 20
SEGMENTS_OPEN_MAX = 512
"""Sealed segments that stay open, if the limit of open files allows it."""
CONNECTIONS_MIN = 100
"""Fewer connections beside the open logs are worth a warning."""


class DataDirs:
    def __init__(self, settings: BrokerSettings, world: World) -> None:
        self._settings = settings
        self._world = world
        self._opened: list[DataDir] = []
        self.failed_paths: list[str] = []
        """Of `log.dirs`, those that could not be opened."""
        self.on_failed: list[Callable[[DataDir, OSError], None]] = []
        """Called with a directory that failed while the broker runs, and its error."""
        self.on_last_failed: Callable[[str], None] = lambda reason: None
        """Called when no directory is left."""

    def __iter__(self) -> Iterator[DataDir]:
        return iter(self._opened)

    # Starting

    def open(self) -> None:
        settings, world = self._settings, self._world
        cache = SegmentCache(min(SEGMENTS_OPEN_MAX, world.descriptors.kept() // 2))
        wanted = settings.broker_id()
        problems: list[str] = []
        _check_nesting(settings.log_dirs())
        for path in settings.log_dirs():
            try:
                data_dir = DataDir.open(world.disk, path, wanted if wanted >= 0 else None, None, world.random, cache)
            except BlockingIOError as error:
                others = [data_dir.path for data_dir in self._opened]
                self.close(clean=False)
                raise StartupError(_why_locked(path, others)) from error
            except DataDirRefused as error:
                self.close(clean=False)
                raise StartupError(str(error)) from error
            except OSError as error:
                why = "no permission" if isinstance(error, PermissionError) else error.strerror or str(error)
                problems.append(f"the data directory {path} cannot be used: {why}")
                self.failed_paths.append(path)
            else:
                self._opened.append(data_dir)
        if not self._opened:
            raise StartupError("; ".join(problems) or "log.dirs names no directory")
        for problem in problems:
            logger.error("%s; its partitions are offline", problem)

    def stored_identity(self) -> tuple[int | None, str | None]:
        """Broker id and cluster id in meta.properties, None if no directory has them."""
        broker_ids = {data_dir.broker_id for data_dir in self if data_dir.broker_id is not None and not data_dir.is_new}
        cluster_ids = {data_dir.cluster_id for data_dir in self if data_dir.cluster_id is not None}
        if len(broker_ids) > 1 or len(cluster_ids) > 1:
            raise StartupError("the data directories belong to different brokers: their meta.properties do not agree")
        return next(iter(broker_ids), None), next(iter(cluster_ids), None)

    def set_identity(self, broker_id: int, cluster_id: str) -> None:
        for data_dir in self:
            data_dir.broker_id, data_dir.cluster_id = broker_id, cluster_id

    def write_identity(self, *, also_new: bool) -> None:
        """Write meta.properties. Not to a new directory before `check_for_missing_logs` has passed it."""
        for data_dir in self:
            if data_dir.is_new and not also_new:
                continue
            try:
                data_dir.write_identity()
            except OSError as error:
                data_dir.mark_offline(error)

    async def load(self, config_of: Callable[[str], LogConfig]) -> list[tuple[DataDir, Log]]:
        """Open all logs. Returns copies that a finished move left behind."""
        now_ms = self._world.clock.now_ms()
        await asyncio.gather(*(self._load(data_dir, config_of, now_ms) for data_dir in self if data_dir.online))
        broken = [data_dir for data_dir in self if not data_dir.online]
        if broken and len(broken) == len(self._opened):
            raise StartupError(f"the data directory {broken[0].path} cannot be used: {broken[0].error}")
        for data_dir in broken:
            logger.error("Data directory %s is offline: %s", data_dir.path, data_dir.error)
        self._check_descriptors()
        try:
            return find_leftover_copies(self._opened)
        except DataDirRefused as error:
            raise StartupError(str(error)) from error

    def _check_descriptors(self) -> None:
        """Warn if the limit of open files is low for the partitions. StartupError if it leaves nothing for connections."""
        descriptors = self._world.descriptors
        left = descriptors.files_left() - (descriptors.kept() - descriptors.kept() // 2)
        if left < 1:
            raise self._too_many_partitions()
        if left < CONNECTIONS_MIN:
            logger.warning(
                "The limit of %d open files leaves %d for connections: %d partitions have one each, and %d are kept for logs. "
                "Raise it: ulimit -n, LimitNOFILE= of systemd",
                descriptors.limit(),
                left,
                sum(len(data_dir.logs) for data_dir in self),
                descriptors.kept(),
            )

    def _too_many_partitions(self) -> StartupError:
        limit = self._world.descriptors.limit()
        return StartupError(
            f"the limit of {limit} open files is too low for the partitions in log.dirs, which have one each: raise it to three "
            f"times their number or more (ulimit -n, LimitNOFILE= of systemd)"
        )

    async def _load(self, data_dir: DataDir, config_of: Callable[[str], LogConfig], now_ms: int) -> None:
        """In workers: recovery after a crash takes long, and signals are handled meanwhile."""
        run = self._world.workers.run
        try:
            loading = await run(partial(data_dir.start_loading, config_of, now_ms))
            threads = min(self._settings.int("num.recovery.threads.per.data.dir"), max(len(loading), 1))
            work = asyncio.gather(*(run(loading.work) for _ in range(threads)), return_exceptions=True)
            try:
                outcomes = await asyncio.shield(work)
            except asyncio.CancelledError:
                # Nobody may write in the directory after its lock is released.
                loading.given_up = True
                await work
                raise
            for outcome in outcomes:
                if outcome is not None:
                    raise outcome
            logs = data_dir.loaded(loading)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise self._too_many_partitions() from error  # not a fault of the directory
            data_dir.mark_offline(error)
            return
        _log_notices(loading.notices)
        for loss in loading.losses:
            logger.warning("%s; see `Damaged logs` in docs/operations.md", loss)
        if logs:
            how = "after a clean shutdown" if data_dir.was_clean else "with recovery after an unclean shutdown"
            logger.info("Loaded %d partitions from %s %s", len(logs), data_dir.path, how)

    def check_for_missing_logs(self, image: ClusterImage) -> None:
        """For a broker alone: partitions without a log would start empty. StartupError if a disk may not be mounted."""
        if self.failed_paths or not all(data_dir.online for data_dir in self):
            return  # they may be there
        missing = [
            f"{name}-{number}"
            for name, topic in image.topics.items()
            for number in range(len(topic.partitions))
            if not any((name, number) in data_dir.logs for data_dir in self)
        ]
        if not missing:
            return
        what = f"partition {missing[0]} is in none of log.dirs"
        if len(missing) > 1:
            what = f"{len(missing)} partitions, {missing[0]} among them, are in none of log.dirs"
        for data_dir in self:
            if data_dir.is_new:
                raise StartupError(
                    f"{data_dir.path} has no {META_PROPERTIES}, and {what}: is its disk mounted? If their "
                    f"records are gone for good: echo version=0 > {data_dir.path}/{META_PROPERTIES}, and they start empty"
                )
        logger.warning("%s: they start empty", what)

    def found_topics(self) -> list[FoundTopic]:
        """The topics that have logs in the directories."""
        found: dict[str, tuple[bytes | None, set[int]]] = {}
        for data_dir in self:
            for key, log in data_dir.logs.items():
                topic_id = None if log.topic_id == ZERO_UUID else log.topic_id
                known_id, partitions = found.get(key.topic, (topic_id, set()))
                found[key.topic] = (known_id or topic_id, partitions | {key.partition})
        return [FoundTopic(name, topic_id, frozenset(partitions)) for name, (topic_id, partitions) in found.items()]

    # Running

    def online(self) -> list[DataDir]:
        return [data_dir for data_dir in self if data_dir.online]

    def offline_paths(self) -> list[str]:
        return self.failed_paths + [data_dir.path for data_dir in self if not data_dir.online]

    def fail(self, data_dir: DataDir, error: OSError) -> None:
        """Take a data directory offline, and its replicas with it: after a failed disk operation its content is unknown."""
        if not data_dir.online:
            return
        data_dir.mark_offline(error)
        for tell in self.on_failed:
            tell(data_dir, error)
        if not self.online():
            self.on_last_failed(f"all data directories are offline, the last one failed: {data_dir.path}: {error}")

    # Stopping

    def close(self, *, clean: bool) -> None:
        """Flush and unlock. `clean`: mark the shutdown as clean, so that the next start does without recovery."""
        for data_dir in self:
            try:
                data_dir.close(clean=clean)
            except OSError as error:
                logger.error("Could not close data directory %s cleanly: %s", data_dir.path, error)
        self._opened.clear()


def _log_notices(notices: list[str]) -> None:
    """After a crash there may be one for each of thousands of partitions."""
    for notice in notices[:_NOTICES_MAX]:
        logger.warning("%s", notice)
    if len(notices) > _NOTICES_MAX:
        logger.warning("%d more partitions have such a warning", len(notices) - _NOTICES_MAX)


def _check_nesting(paths: Sequence[str]) -> None:
    """StartupError if one of log.dirs has the name of a partition of another: it could be deleted as one."""
    known = {os.path.normpath(path): path for path in paths}
    for path in paths:
        above, name = os.path.split(os.path.normpath(path))
        if above in known and parse_partition_dir(name) is not None:
            raise StartupError(f"log.dirs: {path} lies in {known[above]}, where its name is that of a partition; give it another")


def _why_locked(path: str, others: Sequence[str]) -> str:
    for other in others:
        if os.path.realpath(path) == os.path.realpath(other):
            return f"log.dirs names a directory twice: {path} is {other}"
    return f"the data directory {path} is in use by another process"
