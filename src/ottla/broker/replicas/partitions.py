"""The replicas on this broker, and the data directories of their logs.

Owns the table of partitions. Never decides who leads. On a single broker the cluster image defines the table (`apply`). In a
cluster the controller's requests do (`take_roles`, `remove`, `stop_replica`), and the image gives names and settings
(`update_image`).

1. After `apply(image)` every replica that the image assigns to this broker has a log, or is offline.
2. A failed data directory takes its own replicas offline and nothing else (F6, L06). The last one stops the broker.
3. The directory of a deleted replica is renamed at once, so that no restart finds it, and removed after `file.delete.delay.ms`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from functools import partial

from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.replication_context import ALONE, ReplicationContext
from ottla.broker.replicas.role_changes import Role, RoleChanges, role_changes
from ottla.broker.replicas.topic_config import log_config_of, rules_of
from ottla.broker.replicas.traffic import Traffic
from ottla.cluster.image import ClusterImage, TopicImage
from ottla.cluster.settings import BrokerSettings, TopicSettings
from ottla.errors import ErrorCode, KafkaError
from ottla.ports import World
from ottla.records.validate import Rules
from ottla.replication.throttle import is_throttled
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir, least_used
from ottla.storage.log import Log
from ottla.storage.names import STRAY_DIR
from ottla.types import ZERO_UUID, TopicPartition

logger = logging.getLogger(__name__)

_LOGS_AT_ONCE = 100
_REQUESTED_DIRS_MAX = 10_000

Throttled = tuple[tuple[str, ...], tuple[str, ...]]
"""A topic's throttled replicas: as leaders, as followers."""


class Partitions:
    def __init__(
        self,
        broker_id: int,
        settings: BrokerSettings,
        data_dirs: Sequence[DataDir],
        world: World,
        *,
        on_progress: Callable[[Hashable], None],
        on_last_directory_failed: Callable[[str], None],
        on_settings: Callable[[BrokerSettings], None],
        failed_paths: Sequence[str] = (),
        replication: ReplicationContext = ALONE,
        on_directory_failed: Callable[[DataDir], None] | None = None,
        flush_now: Callable[[Partition], None] | None = None,
        traffic: Traffic | None = None,
    ) -> None:
        """`traffic` is counted only with metrics."""
        self._broker_id = broker_id
        self._static_settings = settings
        self._settings = settings
        self._data_dirs = list(data_dirs)
        self._failed_paths = list(failed_paths)
        """Directories that could not be opened at startup."""
        self._clock = world.clock
        self._workers = world.workers
        self._descriptors = world.descriptors
        self._on_progress = on_progress
        self._on_last_directory_failed = on_last_directory_failed
        self._on_settings = on_settings
        self._replication = replication
        self._on_directory_failed = on_directory_failed
        self._flush_now = flush_now
        self._traffic = traffic
        self._image: ClusterImage | None = None
        self.by_key: dict[tuple[str, int], Partition] = {}
        """Changed only here."""
        self._deletions: list[tuple[int, str]] = []
        """Deleted replicas: (monotonic time at which to remove it, directory)."""
        self._prepared: dict[TopicPartition, tuple[DataDir, Log]] = {}
        """Logs that `prepare` created and `apply` has not used yet."""
        self._missing: set[TopicPartition] = set()
        """Replicas whose data directory was offline at startup, or for which no file descriptor was left."""
        self._requested_dirs: dict[TopicPartition, DataDir] = {}
        """Where to create a replica that this broker does not have yet (AlterReplicaLogDirs)."""
        self._resolved: dict[str, tuple[LogConfig, Rules, int, Throttled]] = {}
        """Cache by topic, cleared with each image and each LeaderAndIsr request."""
        self.flush_requested: dict[Partition, None] = {}
        """Partitions with a newly sealed segment, to be flushed soon."""

    # Lookup

    def get(self, key: TopicPartition) -> Partition:
        partition = self.by_key.get(key)
        if partition is None:
            raise self._absent(key)
        return partition

    def find(self, key: TopicPartition) -> Partition | None:
        """The replica, online or offline, if there is one."""
        return self.by_key.get(key)

    def is_missing(self, key: TopicPartition) -> bool:
        """The replica's data directory was offline at startup, or no file descriptor was left for it."""
        return key in self._missing

    @property
    def missing_count(self) -> int:
        """Replicas that are offline without a `Partition`."""
        return len(self._missing - self.by_key.keys())

    def is_lost(self, key: TopicPartition) -> bool:
        """The replica is assigned to this broker, and its data directory is offline."""
        partition = self.by_key.get(key)
        return partition.is_offline if partition is not None else key in self._missing

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._image.topic_names.get(topic_id) if self._image is not None else None

    def __len__(self) -> int:
        return len(self.by_key)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.by_key.values())

    def online(self) -> list[Partition]:
        return [partition for partition in self.by_key.values() if not partition.is_offline]

    def by_data_dir(self) -> list[tuple[DataDir, list[Partition]]]:
        found: dict[str, list[Partition]] = {data_dir.path: [] for data_dir in self._data_dirs if data_dir.online}
        for partition in self.online():
            found[partition.data_dir.path].append(partition)
        return [(data_dir, found[data_dir.path]) for data_dir in self._data_dirs if data_dir.online]

    def online_dirs(self) -> list[DataDir]:
        return [data_dir for data_dir in self._data_dirs if data_dir.online]

    def offline_paths(self) -> list[str]:
        return self._failed_paths + [data_dir.path for data_dir in self._data_dirs if not data_dir.online]

    def _absent(self, key: TopicPartition) -> KafkaError:
        topic = self._image.topics.get(key.topic) if self._image is not None else None
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {key} does not exist")
        if self._broker_id in topic.partitions[key.partition].replicas and (key in self._missing or self.offline_paths()):
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the data directory of {key} is offline")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker has no replica of {key}")

    # Roles

    def topic_settings(self, name: str) -> TopicSettings:
        topic = self._image.topics.get(name) if self._image is not None else None
        return TopicSettings.resolve(self._settings, topic.config if topic is not None else {})

    async def prepare(self, image: ClusterImage) -> None:
        """Create the logs that `apply` will need, in a worker: a topic may have thousands of partitions."""
        first = self._image is None
        await self.prepare_roles(role_changes(self._image, image, self._broker_id).taken, may_be_elsewhere=first)

    async def prepare_roles(self, roles: Iterable[Role], *, may_be_elsewhere: bool) -> None:
        """As `prepare`, for `take_roles`. `may_be_elsewhere`: the replicas may exist in a directory that is offline."""
        self._resolved.clear()
        wanted: dict[DataDir, list[Role]] = {}
        counts = {data_dir: len(data_dir.logs) for data_dir in self.online_dirs()}
        # Half of the descriptors are for connections, whatever is created.
        left = max(0, min(self._descriptors.files_left(), self._descriptors.limit() // 2 - len(self.by_key)))
        created: list[TopicPartition] = []
        refused: list[TopicPartition] = []
        for role in roles:
            key = role.topic_partition
            if key in self.by_key or not counts or key in self._missing or (may_be_elsewhere and self.offline_paths()):
                continue
            if any(key in data_dir.logs for data_dir in self._data_dirs):
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
            self._missing.update(refused)
            logger.error(
                "%d replicas are offline, %s first: the limit of %d open files has no room for their logs. Raise it (ulimit -n, "
                "LimitNOFILE= of systemd) and restart the broker",
                len(refused),
                refused[0],
                self._descriptors.limit(),
            )
        now_ms = self._clock.now_ms()
        for data_dir, roles in wanted.items():
            specs = [(role.topic_partition, role.topic.topic_id, self._resolve(role.topic)[0]) for role in roles]
            try:
                for key, _, _ in specs:
                    data_dir.forget_deleted(key)
                for start in range(0, len(specs), _LOGS_AT_ONCE):
                    logs = await self._workers.run(partial(_make_logs, data_dir, specs[start : start + _LOGS_AT_ONCE], now_ms))
                    self._prepared.update((log.topic_partition, (data_dir, log)) for log in logs)
            except OSError as error:
                self.directory_failed(data_dir, error)

    def apply(self, image: ClusterImage) -> None:
        changes = role_changes(self._image, image, self._broker_id)
        first, self._image = self._image is None, image
        self._follow_settings(changes)
        for key in changes.removed:
            self.remove(key)
        for topic in changes.reconfigured:
            self._configure(topic.name)
        for role in changes.taken:
            self._take_role(role, first=first)
        self._prepared.clear()
        if first and self._missing:
            logger.error("%d replicas are offline because their data directories are", len(self._missing))

    def update_image(self, image: ClusterImage) -> None:
        """In a cluster: apply names and settings. Roles come with LeaderAndIsr requests."""
        changes = role_changes(self._image, image, self._broker_id)
        self._image = image
        self._follow_settings(changes)
        for topic in changes.reconfigured:
            self._configure(topic.name)

    def take_roles(self, roles: Sequence[Role], *, may_be_elsewhere: bool) -> list[Partition | None]:
        """Apply a LeaderAndIsr request, after `prepare_roles`. None: the replica's data directory is offline."""
        self._resolved.clear()
        taken = [self._take_role(role, first=may_be_elsewhere) for role in roles]
        self._prepared.clear()
        return taken

    def _take_role(self, role: Role, *, first: bool) -> Partition | None:
        partition = self.by_key.get(role.topic_partition)
        if partition is None:
            partition = self._create(role, first=first)
        if partition is None:
            return None
        try:
            partition.take_role(role.partition)
        except OSError as error:
            self.directory_failed(partition.data_dir, error)
        return None if partition.is_offline else partition

    def _follow_settings(self, changes: RoleChanges) -> None:
        self._resolved.clear()
        if changes.settings_changed:
            assert self._image is not None
            own, default = self._image.dynamic_config(self._broker_id)
            self._settings = self._static_settings.with_dynamic(own, default)
            self._on_settings(self._settings)
            for name in {partition.topic_partition.topic for partition in self}:
                self._configure(name)

    def _resolve(self, topic: TopicImage) -> tuple[LogConfig, Rules, int, Throttled]:
        """The parsed settings of a topic, once for all its partitions."""
        found = self._resolved.get(topic.name)
        if found is None:
            settings = TopicSettings.resolve(self._settings, topic.config)
            found = (log_config_of(settings), rules_of(settings), settings.int("min.insync.replicas"), _throttled(settings))
            self._resolved[topic.name] = found
        return found

    def _create(self, role: Role, *, first: bool) -> Partition | None:
        """`first`: the replica may exist in a directory that is offline. It is not created again then: an empty log would be
        mistaken for it."""
        key, topic_id = role.topic_partition, role.topic.topic_id
        config, rules, min_insync_replicas, throttled = self._resolve(role.topic)
        while True:
            try:
                data_dir, log = self._find_log(key, topic_id)
            except KafkaError as error:
                logger.error("Cannot create the log of %s: %s", key, error.detail)
                return None
            try:
                if log is None and first and self.offline_paths():
                    self._missing.add(key)
                if log is None and key in self._missing:
                    return None
                if log is None:
                    log = data_dir.create_log(key, topic_id, config, self._clock.now_ms())
                log.config = config
            except OSError as error:
                self.directory_failed(data_dir, error)
                continue
            break
        self._requested_dirs.pop(key, None)
        self._missing.discard(key)
        partition = Partition(
            log,
            data_dir,
            self._broker_id,
            rules,
            min_insync_replicas,
            self._on_progress,
            self.directory_failed,
            self.flush_requested,
            self._replication,
            self._flush_now,
        )
        if self._traffic is not None:
            partition.traffic = self._traffic.of(key.topic)
        self.by_key[key] = partition
        self._throttle(partition, throttled)
        return partition

    def _throttle(self, partition: Partition, throttled: Throttled) -> None:
        number = partition.topic_partition.partition
        partition.leader_throttled = is_throttled(throttled[0], number, self._broker_id)
        partition.follower_throttled = is_throttled(throttled[1], number, self._broker_id)

    def request_dir(self, key: TopicPartition, data_dir: DataDir) -> None:
        """Remember where to create a replica that this broker does not have yet. As in Kafka, a restart forgets it."""
        if len(self._requested_dirs) < _REQUESTED_DIRS_MAX or key in self._requested_dirs:
            self._requested_dirs[key] = data_dir

    def _requested_dir(self, key: TopicPartition) -> DataDir | None:
        data_dir = self._requested_dirs.get(key)
        return data_dir if data_dir is not None and data_dir.online else None

    def _find_log(self, key: TopicPartition, topic_id: bytes) -> tuple[DataDir, Log | None]:
        """The log found on disk, or the directory for a new one."""
        found: list[tuple[DataDir, Log]] = []
        for data_dir in self._data_dirs:
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
                self.directory_failed(data_dir, error)
                continue
            return data_dir, log
        prepared = self._prepared.pop(key, None)
        if prepared is not None and prepared[0].online:
            prepared[0].add_log(prepared[1])
            return prepared
        return self._requested_dir(key) or least_used(self._data_dirs), None

    def remove_leftover(self, data_dir: DataDir, log: Log) -> None:
        logger.info("Removing stale log of %s in %s", log.topic_partition, data_dir.path)
        try:
            self.schedule_deletion(data_dir.delete_log(log.topic_partition), log)
        except OSError as error:
            self.directory_failed(data_dir, error)

    def _configure(self, name: str) -> None:
        topic = self._image.topics.get(name) if self._image is not None else None
        if topic is None:
            return
        here = [partition for index in range(len(topic.partitions)) if (partition := self.by_key.get((name, index))) is not None]
        if here:
            config, rules, min_insync_replicas, throttled = self._resolve(topic)
            for partition in here:
                partition.log.config = config
                partition.configure(rules, min_insync_replicas)
                self._throttle(partition, throttled)

    def stop_replica(self, key: TopicPartition) -> Partition | None:
        """StopReplica without deletion: give up the role and keep the log."""
        partition = self.by_key.pop(key, None)
        if partition is not None:
            self.flush_requested.pop(partition, None)
            partition.resign()
        return partition

    def remove(self, key: TopicPartition) -> None:
        """Delete a replica."""
        self._missing.discard(key)
        if key not in self.by_key:
            for data_dir in self.online_dirs():
                log = data_dir.logs.get(key)
                if log is not None and not log.closed:
                    self.remove_leftover(data_dir, log)  # stopped before
        partition = self.by_key.pop(key, None)
        if partition is None:
            return
        self.flush_requested.pop(partition, None)
        if not partition.is_offline:
            try:
                self.schedule_deletion(partition.data_dir.delete_log(key), partition.log)
            except OSError as error:
                self.directory_failed(partition.data_dir, error)
        # Waiting requests are answered with NOT_LEADER_OR_FOLLOWER, later ones with KAFKA_STORAGE_ERROR.
        if not partition.is_offline:
            partition.resign()
        partition.go_offline()

    def schedule_deletion(self, path: str, log: Log) -> None:
        """Remove the directory of a deleted replica after `file.delete.delay.ms`."""
        self._deletions.append((int(self._clock.monotonic() * 1000) + log.config.file_delete_delay_ms, path))

    def take_due_deletions(self, now_ms: int) -> list[str]:
        """The directories to remove now."""
        due = [path for when, path in self._deletions if when <= now_ms]
        self._deletions = [(when, path) for when, path in self._deletions if when > now_ms]
        return due

    def retire_deleted_logs(self, image: ClusterImage) -> None:
        """In a cluster, after the first image: rename logs of topics that were deleted while this broker was down (C08)."""
        self._retire_all(
            lambda key, log: key not in self.by_key and log.topic_id != ZERO_UUID and log.topic_id not in image.topic_names
        )

    def retire_strays(self) -> None:
        """Rename logs whose topic is not in the image to `-stray`, as Kafka does. They come from an interrupted deletion or were
        copied here; only an operator can tell, so they are kept."""
        self._retire_all(lambda key, log: key not in self.by_key)

    def _retire_all(self, is_stray: Callable[[TopicPartition, Log], bool]) -> None:
        for data_dir in self.online_dirs():
            for key, log in list(data_dir.logs.items()):
                if not log.closed and is_stray(key, log) and not self._retire(data_dir, log, "belongs to no topic"):
                    break

    def _retire(self, data_dir: DataDir, log: Log, why: str) -> bool:
        """Rename a log that is not used, and keep it. False: the directory failed."""
        try:
            path = data_dir.delete_log(log.topic_partition, STRAY_DIR)
        except OSError as error:
            self.directory_failed(data_dir, error)
            return False
        logger.warning("Stray log of %s in %s %s: renamed to %s", log.topic_partition, data_dir.path, why, path)
        return True

    # Failed directories

    def directory_failed(self, data_dir: DataDir, error: OSError) -> None:
        """Take a data directory and its replicas offline: after a failed disk operation its content is unknown."""
        if not data_dir.online:
            return
        data_dir.mark_offline(error)
        lost = [partition for partition in self if partition.data_dir is data_dir]
        logger.error("Data directory %s is offline with %d replicas: %s", data_dir.path, len(lost), error)
        for partition in lost:
            partition.go_offline()
        if self._on_directory_failed is not None:
            self._on_directory_failed(data_dir)
        if not self.online_dirs():
            self._on_last_directory_failed(f"all data directories are offline, the last one failed: {data_dir.path}: {error}")


def _throttled(settings: TopicSettings) -> Throttled:
    return (
        tuple(settings.list("leader.replication.throttled.replicas")),
        tuple(settings.list("follower.replication.throttled.replicas")),
    )


def _make_logs(data_dir: DataDir, specs: Sequence[tuple[TopicPartition, bytes, LogConfig]], now_ms: int) -> list[Log]:
    return [data_dir.make_log(key, topic_id, config, now_ms) for key, topic_id, config in specs]
