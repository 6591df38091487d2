"""What the shards of groups add to their `ShardHost` (`Coordinator`): their topic, their settings, and what loading one begins.

Owns the settings of groups: those of the broker, and those that single groups override.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.broker.coordinators.internal_topic import Controller, InternalTopic, replication_factor
from ottla.cluster.requests import NewTopic
from ottla.cluster.settings.group import group_value
from ottla.coordinator.group.group import GroupConfig

if TYPE_CHECKING:
    from ottla.broker.coordinators.shard_host import HostedShard
    from ottla.broker.metadata.local_metadata import LocalMetadata
    from ottla.broker.replicas.partitions import Partitions
    from ottla.cluster.settings import BrokerSettings
    from ottla.coordinator.group.shard import GroupShard
    from ottla.coordinator.shard import Decision, Now

logger = logging.getLogger(__name__)

OFFSETS_TOPIC: Final = "__consumer_offsets"


def offsets_topic(metadata: LocalMetadata, partitions: Partitions, controller: Callable[[], Controller]) -> InternalTopic:
    return InternalTopic(OFFSETS_TOPIC, metadata, partitions, controller, _topic_definition)


def _topic_definition(metadata: LocalMetadata) -> NewTopic:
    settings = metadata.settings
    return NewTopic(
        OFFSETS_TOPIC,
        settings.int("offsets.topic.num.partitions"),
        replication_factor(metadata, "offsets.topic.replication.factor"),
        config={
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "segment.bytes": str(settings.int("offsets.topic.segment.bytes")),
        },
    )


class GroupShards:
    def __init__(self, metadata: LocalMetadata, topic: InternalTopic) -> None:
        self._metadata = metadata
        self._topic = topic
        self.config = group_config(metadata.settings)
        """The broker's settings of groups, without the overrides of single groups."""
        self.codec = metadata.settings.int("offsets.topic.compression.codec")
        self._group_configs: Mapping[str, Mapping[str, str]] = {}

    # What the shard host asks

    def new_shard(self, partition: int) -> GroupShard:
        # Imported with the first group: a broker without groups starts faster.
        from ottla.coordinator.group.shard import GroupShard

        config = self._shard_config()
        shard = GroupShard(config, partition)
        shard.settings_changed(config, self._overrides(config))
        return shard

    def on_loaded(self, hosted: HostedShard[GroupShard], shard: GroupShard, now: Now) -> Iterator[Decision]:
        if shard.groups.by_id:
            logger.info("Loaded %d groups from %s", len(shard.groups.by_id), hosted.topic_partition)
        yield shard.topics_changed(self._metadata.image, frozenset(), now)
        yield shard.on_loaded(now)

    def perform_effect(self, hosted: HostedShard[GroupShard], effect: object) -> None:
        raise AssertionError("groups have no effects")

    @property
    def outlasts_epochs(self) -> bool:
        return True  # as in Kafka: a broker that died, or left an ISR, changes nothing for the groups of the others

    @property
    def load_buffer_bytes(self) -> int:
        return self._metadata.settings.int("offsets.load.buffer.size")

    @property
    def commit_timeout_ms(self) -> int:
        return self._metadata.settings.int("offsets.commit.timeout.ms")

    # Settings

    def settings_changed(self, settings: BrokerSettings) -> None:
        self.config = group_config(settings)
        self.codec = settings.int("offsets.topic.compression.codec")

    def set_group_configs(self, configs: Mapping[str, Mapping[str, str]]) -> bool:
        """Whether they are new."""
        known, self._group_configs = self._group_configs, configs
        return known != configs

    def configure(self, shards: Iterable[GroupShard]) -> None:
        """Have loaded shards use the settings as they are now."""
        config = self._shard_config()
        overrides = self._overrides(config)
        for shard in shards:
            shard.settings_changed(config, overrides)

    def _shard_config(self) -> GroupConfig:
        return replace(self.config, record_bytes_max=self._topic.message_bytes_max)

    def _overrides(self, config: GroupConfig) -> dict[str, GroupConfig]:
        """The settings of groups that override some of the broker's."""
        settings = self._metadata.settings
        return {group_id: own_group_config(config, overrides, settings) for group_id, overrides in self._group_configs.items()}


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
