"""The group coordinators of this broker: one shard for each partition of `__consumer_offsets` that it leads (F37, G07).

Owns the settings of groups, the expiry of offsets, and what a marker does to offsets that a transaction committed. Which shards
are here and how their decisions are performed is `shard_host`.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from ottla.broker.coordinators.internal_topic import Controller, InternalTopic, replication_factor
from ottla.broker.coordinators.shard_host import HostedShard, ShardHost
from ottla.broker.coordinators.shard_timers import Periodic
from ottla.cluster.requests import NewTopic
from ottla.cluster.settings.group import group_value
from ottla.coordinator.group.group import Caller, GroupConfig
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.clock_watch import ClockWatch
    from ottla.broker.metadata.local_metadata import LocalMetadata
    from ottla.broker.network.context import RequestContext
    from ottla.broker.network.purgatory import Purgatory
    from ottla.broker.replicas.partitions import Partitions
    from ottla.cluster.image import ClusterImage, TopicImage
    from ottla.cluster.settings import BrokerSettings
    from ottla.coordinator.group.shard import GroupShard
    from ottla.ports import World

logger = logging.getLogger(__name__)

OFFSETS_TOPIC: Final = "__consumer_offsets"


class GroupCoordinators:
    def __init__(
        self,
        metadata: LocalMetadata,
        partitions: Partitions,
        purgatory: Purgatory,
        controller: Callable[[], Controller],
        world: World,
        clock_watch: ClockWatch,
    ) -> None:
        self._metadata = metadata
        self._partitions = partitions
        self._random = world.random
        self._clock_watch = clock_watch
        topic = InternalTopic(OFFSETS_TOPIC, metadata, partitions, controller, self._topic_definition)
        self.shards: ShardHost[GroupShard] = ShardHost(self, topic, partitions, purgatory, world.clock)
        self.config = group_config(metadata.settings)
        """The broker's settings of groups, without the overrides of single groups."""
        self.codec = metadata.settings.int("offsets.topic.compression.codec")
        self.may_describe: Callable[[RequestContext, str], bool] | None = None
        """With an authorizer: whether the sender of a request may know of a topic."""
        self._group_configs: Mapping[str, Mapping[str, str]] = {}
        self._topics: Mapping[str, TopicImage] = {}
        """Of the image that was applied last."""
        self._expiry = Periodic(self._expiry_interval_ms, self._expire_offsets)
        self._expiry.start()

    def close(self) -> None:
        self._expiry.stop()
        self.shards.close()

    def caller(self, context: RequestContext, member_id: str) -> Caller:
        """The sender of a request, with a new member id if it has none."""
        new_id = uuid_text(self._random.bytes(16)) if not member_id else ""
        caller = Caller(context.version, context.client_id or "", f"/{context.client_host}", new_id)
        if self.may_describe is not None:
            caller.may_describe = partial(self.may_describe, context)
        return caller

    # What the shard host asks

    def new_shard(self, partition: int) -> GroupShard:
        # Imported with the first group: a broker without groups starts faster.
        from ottla.coordinator.group.shard import GroupShard

        config = self._shard_config()
        shard = GroupShard(config, partition)
        shard.settings_changed(config, self._group_overrides(config))
        return shard

    def on_loaded(self, hosted: HostedShard[GroupShard], shard: GroupShard) -> None:
        now = self.shards.now()
        if shard.groups.by_id:
            logger.info("Loaded %d groups from %s", len(shard.groups.by_id), hosted.topic_partition)
        self.shards.perform(hosted, shard.topics_changed(self._metadata.image, frozenset(), now))
        if hosted.shard is shard:
            self.shards.perform(hosted, shard.on_loaded(now))

    def perform_effect(self, hosted: HostedShard[GroupShard], effect: object) -> None:
        raise AssertionError("groups have no effects")

    @property
    def load_buffer_bytes(self) -> int:
        return self._metadata.settings.int("offsets.load.buffer.size")

    @property
    def commit_timeout_ms(self) -> int:
        return self._metadata.settings.int("offsets.commit.timeout.ms")

    def _topic_definition(self) -> NewTopic:
        settings = self._metadata.settings
        return NewTopic(
            OFFSETS_TOPIC,
            settings.int("offsets.topic.num.partitions"),
            replication_factor(self._metadata, "offsets.topic.replication.factor"),
            config={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.int("offsets.topic.segment.bytes")),
            },
        )

    # Transactions that commit offsets

    def check_loaded(self, partition: int) -> None:
        """KafkaError if a marker may not be written to a partition of `__consumer_offsets` yet, because its shard is loading."""
        hosted = self.shards.get(partition)
        if hosted is None or hosted.shard is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the groups of {OFFSETS_TOPIC}-{partition} are being loaded")

    def marker_written(self, partition: int, producer_id: int, *, commit: bool) -> None:
        """The log has the marker: offsets that the producer's transaction committed become visible, or are dropped."""
        hosted = self.shards.get(partition)
        if hosted is not None and hosted.shard is not None:
            hosted.shard.replay_end_transaction_marker(producer_id, commit=commit)

    # Following image, settings and time

    def apply(self, image: ClusterImage, led: Mapping[int, int] | None = None) -> None:
        before = self.shards.topic.image
        configs, self._group_configs = self._group_configs, image.group_configs
        self.shards.apply(image, led)
        if self.shards.topic.image is not before or configs != self._group_configs:
            self._configure()
        topics, self._topics = self._topics, image.topics
        deleted = frozenset(topics.keys() - image.topics.keys()) if topics is not image.topics else frozenset()
        now = self.shards.now()
        for hosted, shard in self.shards.loaded():
            self.shards.perform(hosted, shard.topics_changed(image, deleted, now))

    def settings_changed(self, settings: BrokerSettings) -> None:
        self.config = group_config(settings)
        self.codec = settings.int("offsets.topic.compression.codec")
        self._configure()

    def _configure(self) -> None:
        config = self._shard_config()
        overrides = self._group_overrides(config)
        for _, shard in self.shards.loaded():
            shard.settings_changed(config, overrides)

    def _shard_config(self) -> GroupConfig:
        limit = self._partitions.topic_settings(OFFSETS_TOPIC).int("max.message.bytes")
        return replace(self.config, record_bytes_max=limit)

    def _group_overrides(self, config: GroupConfig) -> dict[str, GroupConfig]:
        """The settings of groups that override some of the broker's."""
        settings = self._metadata.settings
        return {group_id: own_group_config(config, overrides, settings) for group_id, overrides in self._group_configs.items()}

    def _expiry_interval_ms(self) -> int:
        return self._metadata.settings.int("offsets.retention.check.interval.ms")

    def _expire_offsets(self) -> None:
        wall_ms = self._clock_watch.now_ms()
        for hosted, shard in self.shards.loaded():
            self.shards.perform(hosted, shard.expire_offsets(wall_ms))


def group_config(settings: BrokerSettings) -> GroupConfig:
    return GroupConfig(
        initial_rebalance_delay_ms=settings.int("group.initial.rebalance.delay.ms"),
        session_timeout_min_ms=settings.int("group.min.session.timeout.ms"),
        session_timeout_max_ms=settings.int("group.max.session.timeout.ms"),
        size_max=settings.int("group.max.size"),
        offset_metadata_bytes_max=settings.int("offset.metadata.max.bytes"),
        offsets_retention_ms=settings.int("offsets.retention.minutes") * 60_000,
        rebalance_protocols=frozenset(settings.list("group.coordinator.rebalance.protocols")),
        consumer_session_timeout_ms=settings.int("group.consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=settings.int("group.consumer.heartbeat.interval.ms"),
        consumer_size_max=settings.int("group.consumer.max.size"),
        consumer_assignors=tuple(settings.list("group.consumer.assignors")),
        consumer_migration_policy=settings.str("group.consumer.migration.policy"),
        consumer_regex_refresh_interval_ms=settings.int("group.consumer.regex.refresh.interval.ms"),
        consumer_assignment_interval_ms=settings.int("group.consumer.assignment.interval.ms"),
    )


def own_group_config(config: GroupConfig, overrides: Mapping[str, str], settings: BrokerSettings) -> GroupConfig:
    """The settings of a group with overrides."""

    def number(name: str) -> int:
        value = group_value(name, overrides, settings)
        assert isinstance(value, int)
        return value

    return replace(
        config,
        consumer_session_timeout_ms=number("consumer.session.timeout.ms"),
        consumer_heartbeat_interval_ms=number("consumer.heartbeat.interval.ms"),
        consumer_assignment_interval_ms=number("consumer.assignment.interval.ms"),
    )


def uuid_text(random: bytes) -> str:
    """A random (version 4) UUID in Java's text form."""
    raw = bytearray(random)
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
