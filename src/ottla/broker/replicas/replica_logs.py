"""The logs of this broker's replicas: in which data directory each is, which are created, which are deleted.

Never decides which replicas this broker has.

1. A failed data directory is asked for nothing (L06). A replica that may be in it is `missing`, and is not created elsewhere: an
   empty log would be mistaken for it.
2. The directory of a deleted replica is renamed at once, so that no restart finds it, and removed after `file.delete.delay.ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial

from ottla.broker.replicas.data_dirs import DataDirs
from ottla.broker.replicas.role_changes import Role
from ottla.cluster.image import TopicImage
from ottla.errors import KafkaError
from ottla.ports import World
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir, least_used
from ottla.storage.log import Log
from ottla.storage.names import STRAY_DIR
from ottla.types import ZERO_UUID, TopicPartition

logger = logging.getLogger(__name__)

_LOGS_AT_ONCE = 100
_REQUESTED_DIRS_MAX = 10_000


class ReplicaLogs:
    def __init__(self, data_dirs: DataDirs, world: World) -> None:
        self.data_dirs = data_dirs
        self.missing: set[TopicPartition] = set()
        """Replicas whose data directory was offline at startup, or for which no file descriptor was left."""
        self._clock = world.clock
        self._workers = world.workers
        self._descriptors = world.descriptors
        self._prepared: dict[TopicPartition, tuple[DataDir, Log]] = {}
        """Logs that `prepare` created and nobody has taken yet."""
        self._requested_dirs: dict[TopicPartition, DataDir] = {}
        """Where to create a replica that this broker does not have yet (AlterReplicaLogDirs)."""
        self._deletions: list[tuple[int, str]] = []
        """Deleted replicas: (monotonic time at which to remove it, directory)."""

    # Creation

    async def prepare(
        self, roles: Iterable[Role], config_of: Callable[[TopicImage], LogConfig], open_logs: int, *, may_be_elsewhere: bool
    ) -> None:
        """Create the logs that `take` will need, in a worker: a topic may have thousands of partitions.

        `open_logs`: how many replicas are here. `may_be_elsewhere`: as in `take`."""
        data_dirs = self.data_dirs
        wanted: dict[DataDir, list[Role]] = {}
        counts = {data_dir: len(data_dir.logs) for data_dir in data_dirs.online()}
        # Half of the descriptors are for connections, whatever is created.
        left = max(0, min(self._descriptors.files_left(), self._descriptors.limit() // 2 - open_logs))
        created: list[TopicPartition] = []
        refused: list[TopicPartition] = []
        for role in roles:
            key = role.topic_partition
            if not counts or key in self.missing or (may_be_elsewhere and data_dirs.offline_paths()):
                continue
            if any(key in data_dir.logs for data_dir in data_dirs):
                continue
            data_dir = self._requested_dir(key) or min(counts, key=lambda each: counts[each])
            if len(created) == left:
                refused.append(key)
                continue
            created.append(key)
            counts[data_dir] += 1
            wanted.setdefault(data_dir, []).append(role)
        if refused:
            # A failed open would take the data directory offline.
            self.missing.update(refused)
            logger.error(
                "%d replicas are offline, %s first: the limit of %d open files has no room for their logs. Raise it (ulimit -n, "
                "LimitNOFILE= of systemd) and restart the broker",
                len(refused),
                refused[0],
                self._descriptors.limit(),
            )
        now_ms = self._clock.now_ms()
        for data_dir, roles in wanted.items():
            specs = [(role.topic_partition, role.topic.topic_id, config_of(role.topic)) for role in roles]
            try:
                for key, _, _ in specs:
                    data_dir.forget_deleted(key)
                for start in range(0, len(specs), _LOGS_AT_ONCE):
                    logs = await self._workers.run(partial(_make_logs, data_dir, specs[start : start + _LOGS_AT_ONCE], now_ms))
                    self._prepared.update((log.topic_partition, (data_dir, log)) for log in logs)
            except OSError as error:
                data_dirs.fail(data_dir, error)

    def forget_prepared(self) -> None:
        """The prepared logs that are needed have been taken."""
        self._prepared.clear()

    def take(
        self, key: TopicPartition, topic_id: bytes, config: LogConfig, *, may_be_elsewhere: bool
    ) -> tuple[DataDir, Log] | None:
        """The log of a replica, created if there is none. None: it is missing, or cannot be created.

        `may_be_elsewhere`: the replica may exist in a directory that is offline."""
        while True:
            try:
                data_dir, log = self._find(key, topic_id)
            except KafkaError:
                return None  # all directories are offline, as was logged when they failed
            try:
                if log is None and may_be_elsewhere and self.data_dirs.offline_paths():
                    self.missing.add(key)
                if log is None and key in self.missing:
                    return None
                if log is None:
                    log = data_dir.create_log(key, topic_id, config, self._clock.now_ms())
                log.config = config
            except OSError as error:
                self.data_dirs.fail(data_dir, error)
                continue
            break
        self._requested_dirs.pop(key, None)
        self.missing.discard(key)
        return data_dir, log

    def request_dir(self, key: TopicPartition, data_dir: DataDir) -> None:
        """Remember where to create a replica that this broker does not have yet. As in Kafka, a restart forgets it."""
        if len(self._requested_dirs) < _REQUESTED_DIRS_MAX or key in self._requested_dirs:
            self._requested_dirs[key] = data_dir

    def _requested_dir(self, key: TopicPartition) -> DataDir | None:
        data_dir = self._requested_dirs.get(key)
        return data_dir if data_dir is not None and data_dir.online else None

    def _find(self, key: TopicPartition, topic_id: bytes) -> tuple[DataDir, Log | None]:
        """The log found on disk, or the directory for a new one."""
        found: list[tuple[DataDir, Log]] = []
        for data_dir in self.data_dirs:
            log = data_dir.logs.get(key)
            if log is None or log.closed or not data_dir.online:
                continue
            if log.topic_id in (topic_id, ZERO_UUID):
                found.append((data_dir, log))
            elif log.log_end_offset == 0:
                self.remove_leftover(data_dir, log)
            else:
                self._retire(data_dir, log, "belongs to another topic of that name")
        # A directory that failed while a log was being created keeps an incomplete one; the log was created in another.
        found.sort(key=lambda place: (place[1].topic_id == topic_id, place[1].log_end_offset), reverse=True)
        for data_dir, log in found[1:]:
            if log.log_end_offset == 0:
                self.remove_leftover(data_dir, log)
            else:
                logger.error(
                    "%s exists in %s and in %s: the log in %s is not used", key, found[0][0].path, data_dir.path, data_dir.path
                )
        for data_dir, log in found[:1]:
            try:
                if log.topic_id == ZERO_UUID:
                    data_dir.assign_topic_id(log, topic_id)
            except OSError as error:
                self.data_dirs.fail(data_dir, error)
                continue
            return data_dir, log
        prepared = self._prepared.pop(key, None)
        if prepared is not None and prepared[0].online:
            prepared[0].add_log(prepared[1])
            return prepared
        return self._requested_dir(key) or least_used(list(self.data_dirs)), None

    # Deletion

    def remove_leftovers(self, key: TopicPartition) -> None:
        """Delete the logs of a replica that this broker no longer has."""
        for data_dir in self.data_dirs.online():
            log = data_dir.logs.get(key)
            if log is not None and not log.closed:
                self.remove_leftover(data_dir, log)

    def remove_leftover(self, data_dir: DataDir, log: Log) -> None:
        logger.info("Removing stale log of %s in %s", log.topic_partition, data_dir.path)
        try:
            self.schedule_deletion(data_dir.delete_log(log.topic_partition), log)
        except OSError as error:
            self.data_dirs.fail(data_dir, error)

    def schedule_deletion(self, path: str, log: Log) -> None:
        """Remove the directory of a deleted replica after `file.delete.delay.ms`."""
        self._deletions.append((int(self._clock.monotonic() * 1000) + log.config.file_delete_delay_ms, path))

    def take_due_deletions(self, now_ms: int) -> list[str]:
        """The directories to remove now."""
        due = [path for when, path in self._deletions if when <= now_ms]
        self._deletions = [(when, path) for when, path in self._deletions if when > now_ms]
        return due

    def retire(self, is_stray: Callable[[TopicPartition, Log], bool]) -> None:
        """Rename logs that belong to no topic to `-stray`, and keep them, as Kafka does."""
        for data_dir in self.data_dirs.online():
            for key, log in list(data_dir.logs.items()):
                if not log.closed and is_stray(key, log) and not self._retire(data_dir, log, "belongs to no topic"):
                    break

    def _retire(self, data_dir: DataDir, log: Log, why: str) -> bool:
        """Rename a log that is not used, and keep it. False: the directory failed."""
        try:
            path = data_dir.delete_log(log.topic_partition, STRAY_DIR)
        except OSError as error:
            self.data_dirs.fail(data_dir, error)
            return False
        logger.warning("Stray log of %s in %s %s: renamed to %s", log.topic_partition, data_dir.path, why, path)
        return True


def _make_logs(data_dir: DataDir, specs: Sequence[tuple[TopicPartition, bytes, LogConfig]], now_ms: int) -> list[Log]:
    return [data_dir.make_log(key, topic_id, config, now_ms) for key, topic_id, config in specs]
