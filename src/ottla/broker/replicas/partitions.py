"""The replicas on this broker.

Owns the table of partitions. Their logs are in `replica_logs`. Never decides who leads. On a single broker the cluster image
defines the table (`apply`). In a cluster the controller's requests do (`take_roles`, `remove`, `stop_replica`), and the image
gives names and settings (`update_image`).

1. After `apply(image)` every replica that the image assigns to this broker has a log, or is offline.
2. A failed data directory takes its own replicas offline and nothing else (F6, L06). The last one stops the broker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence

from ottla.broker.replicas.partition import Flushes, Partition
from ottla.broker.replicas.replica_logs import ReplicaLogs
from ottla.broker.replicas.replication_context import ALONE, ReplicationContext
from ottla.broker.replicas.role_changes import Role, RoleChanges, role_changes
from ottla.broker.replicas.topic_config import TopicConfig, TopicConfigs
from ottla.broker.replicas.traffic import Traffic
from ottla.cluster.image import ClusterImage, TopicImage
from ottla.errors import ErrorCode, KafkaError
from ottla.replication.throttle import is_throttled
from ottla.storage.config import LogConfig
from ottla.storage.data_dir import DataDir
from ottla.types import ZERO_UUID, TopicPartition

logger = logging.getLogger(__name__)


class Partitions:
    def __init__(
        self,
        broker_id: int,
        logs: ReplicaLogs,
        configs: TopicConfigs,
        flushes: Flushes,
        *,
        on_progress: Callable[[Hashable], None],
        replication: ReplicationContext = ALONE,
        traffic: Traffic | None = None,
    ) -> None:
        """`traffic` is counted only with metrics."""
        self.logs = logs
        self.data_dirs = logs.data_dirs
        self.data_dirs.on_failed.append(self._directory_failed)
        self._broker_id = broker_id
        self._configs = configs
        self._flushes = flushes
        self._on_progress = on_progress
        self._replication = replication
        self._traffic = traffic
        self._image: ClusterImage | None = None
        self.by_key: dict[tuple[str, int], Partition] = {}
        """Changed only here."""

    # Lookup

    def get(self, key: TopicPartition) -> Partition:
        partition = self.by_key.get(key)
        if partition is None:
            raise self._absent(key)
        return partition

    def find(self, key: TopicPartition) -> Partition | None:
        """The replica, online or offline, if there is one."""
        return self.by_key.get(key)

    @property
    def missing_count(self) -> int:
        """Replicas that are offline without a `Partition`."""
        return len(self.logs.missing - self.by_key.keys())

    def is_lost(self, key: TopicPartition) -> bool:
        """The replica is assigned to this broker, and its data directory is offline."""
        partition = self.by_key.get(key)
        return partition.is_offline if partition is not None else key in self.logs.missing

    def topic_name(self, topic_id: bytes) -> str | None:
        return self._image.topic_names.get(topic_id) if self._image is not None else None

    def __len__(self) -> int:
        return len(self.by_key)

    def __iter__(self) -> Iterator[Partition]:
        return iter(self.by_key.values())

    def online(self) -> list[Partition]:
        return [partition for partition in self.by_key.values() if not partition.is_offline]

    def by_data_dir(self) -> list[tuple[DataDir, list[Partition]]]:
        dirs = self.data_dirs.online()
        found: dict[str, list[Partition]] = {data_dir.path: [] for data_dir in dirs}
        for partition in self.online():
            found[partition.data_dir.path].append(partition)
        return [(data_dir, found[data_dir.path]) for data_dir in dirs]

    def _absent(self, key: TopicPartition) -> KafkaError:
        topic = self._image.topics.get(key.topic) if self._image is not None else None
        if topic is None or not 0 <= key.partition < len(topic.partitions):
            return KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {key} does not exist")
        if self._broker_id in topic.partitions[key.partition].replicas and (
            key in self.logs.missing or self.data_dirs.offline_paths()
        ):
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the data directory of {key} is offline")
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this broker has no replica of {key}")

    # Roles

    async def prepare(self, image: ClusterImage) -> None:
        """Create the logs that `apply` will need, in a worker: a topic may have thousands of partitions."""
        first = self._image is None
        await self.prepare_roles(role_changes(self._image, image, self._broker_id).taken, may_be_elsewhere=first)

    async def prepare_roles(self, roles: Iterable[Role], *, may_be_elsewhere: bool) -> None:
        """As `prepare`, for `take_roles`. `may_be_elsewhere`: the replicas may exist in a directory that is offline."""
        self._configs.forget()
        new = [role for role in roles if role.topic_partition not in self.by_key]
        await self.logs.prepare(new, self._log_config, len(self.by_key), may_be_elsewhere=may_be_elsewhere)

    def _log_config(self, topic: TopicImage) -> LogConfig:
        return self._configs.of(topic).log

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
        self.logs.forget_prepared()
        if first and self.logs.missing:
            logger.error("%d replicas are offline because their data directories are", len(self.logs.missing))

    def update_image(self, image: ClusterImage) -> None:
        """In a cluster: apply names and settings. Roles come with LeaderAndIsr requests."""
        changes = role_changes(self._image, image, self._broker_id)
        self._image = image
        self._follow_settings(changes)
        for topic in changes.reconfigured:
            self._configure(topic.name)

    def take_roles(self, roles: Sequence[Role], *, may_be_elsewhere: bool) -> list[Partition | None]:
        """Apply a LeaderAndIsr request, after `prepare_roles`. None: the replica's data directory is offline."""
        self._configs.forget()
        taken = [self._take_role(role, first=may_be_elsewhere) for role in roles]
        self.logs.forget_prepared()
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
            self.data_dirs.fail(partition.data_dir, error)
        return None if partition.is_offline else partition

    def _follow_settings(self, changes: RoleChanges) -> None:
        self._configs.forget()
        if changes.settings_changed:
            assert self._image is not None
            self._configs.set_dynamic(*self._image.dynamic_config(self._broker_id))
            for name in {partition.topic_partition.topic for partition in self}:
                self._configure(name)

    def _create(self, role: Role, *, first: bool) -> Partition | None:
        """`first`: the replica may exist in a directory that is offline."""
        key, config = role.topic_partition, self._configs.of(role.topic)
        found = self.logs.take(key, role.topic.topic_id, config.log, may_be_elsewhere=first)
        if found is None:
            return None
        data_dir, log = found
        partition = Partition(
            log,
            data_dir,
            self._broker_id,
            config.rules,
            config.min_insync_replicas,
            self._on_progress,
            self.data_dirs.fail,
            self._flushes,
            self._replication,
        )
        if self._traffic is not None:
            partition.traffic = self._traffic.of(key.topic)
        self.by_key[key] = partition
        self._throttle(partition, config)
        return partition

    def _throttle(self, partition: Partition, config: TopicConfig) -> None:
        number = partition.topic_partition.partition
        partition.leader_throttled = is_throttled(config.leader_throttled, number, self._broker_id)
        partition.follower_throttled = is_throttled(config.follower_throttled, number, self._broker_id)

    def _configure(self, name: str) -> None:
        topic = self._image.topics.get(name) if self._image is not None else None
        if topic is None:
            return
        here = [partition for index in range(len(topic.partitions)) if (partition := self.by_key.get((name, index))) is not None]
        if here:
            config = self._configs.of(topic)
            for partition in here:
                partition.log.config = config.log
                partition.configure(config.rules, config.min_insync_replicas)
                self._throttle(partition, config)

    def stop_replica(self, key: TopicPartition) -> Partition | None:
        """StopReplica without deletion: give up the role and keep the log."""
        partition = self.by_key.pop(key, None)
        if partition is not None:
            self._flushes.forget(partition)
            partition.resign()
        return partition

    def remove(self, key: TopicPartition) -> None:
        """Delete a replica."""
        self.logs.missing.discard(key)
        if key not in self.by_key:
            self.logs.remove_leftovers(key)  # stopped before
        partition = self.by_key.pop(key, None)
        if partition is None:
            return
        self._flushes.forget(partition)
        if not partition.is_offline:
            try:
                self.logs.schedule_deletion(partition.data_dir.delete_log(key), partition.log)
            except OSError as error:
                self.data_dirs.fail(partition.data_dir, error)
        # Waiting requests are answered with NOT_LEADER_OR_FOLLOWER, later ones with KAFKA_STORAGE_ERROR.
        if not partition.is_offline:
            partition.resign()
        partition.go_offline()

    def retire_deleted_logs(self, image: ClusterImage) -> None:
        """In a cluster, after the first image: rename logs of topics that were deleted while this broker was down (C08)."""
        self.logs.retire(
            lambda key, log: key not in self.by_key and log.topic_id != ZERO_UUID and log.topic_id not in image.topic_names
        )

    def retire_strays(self) -> None:
        """Rename logs whose topic is not in the image to `-stray`, as Kafka does. They come from an interrupted deletion or were
        copied here; only an operator can tell, so they are kept."""
        self.logs.retire(lambda key, log: key not in self.by_key)

    def _directory_failed(self, data_dir: DataDir, error: OSError) -> None:
        lost = [partition for partition in self if partition.data_dir is data_dir]
        logger.error("Data directory %s is offline with %d replicas: %s", data_dir.path, len(lost), error)
        for partition in lost:
            partition.go_offline()
