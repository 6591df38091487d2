"""The host of the group coordinators: one shard for each partition of `__consumer_offsets` that this broker leads (F37, G07).

Owns what is particular to groups: the topic, their settings, their expiry, and the markers of transactions that have committed
offsets. The rest is `shard_host`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from ottla.broker.coordinators.shard_host import HostedShard, ShardHost
from ottla.cluster.requests import NewTopic
from ottla.cluster.settings.group import group_value
from ottla.coordinator.group.group import Caller, GroupConfig
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.app import Broker
    from ottla.broker.network.context import RequestContext
    from ottla.cluster.image import ClusterImage
    from ottla.cluster.settings import BrokerSettings
    from ottla.coordinator.group.shard import GroupShard

logger = logging.getLogger(__name__)

OFFSETS_TOPIC: Final = "__consumer_offsets"


class Coordinators(ShardHost["GroupShard"]):
    def __init__(self, broker: Broker, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(broker, loop, OFFSETS_TOPIC)
        self.config = group_config(broker.settings)
        """What the broker's settings say of groups, but for those of single groups."""
        self.compression = broker.settings.int("offsets.topic.compression.codec")
        """The codec of what groups write."""
        self._group_configs: Mapping[str, Mapping[str, str]] = {}
        self._expiry: asyncio.TimerHandle | None = None
        self._schedule_expiry()

    def close(self) -> None:
        if self._expiry is not None:
            self._expiry.cancel()
        super().close()

    def caller(self, context: RequestContext, member_id: str) -> Caller:
        """Of a request that names a member, or needs a name for one."""
        new_id = uuid_text(self._broker.world.random.bytes(16)) if not member_id else ""
        return Caller(context.version, context.client_id or "", f"/{context.client_host}", new_id)

    # What is particular to groups

    def _new_shard(self, hosted: HostedShard[GroupShard]) -> GroupShard:
        # Imported when the first group is near: a broker without groups starts faster.
        from ottla.coordinator.group.shard import GroupShard

        config = self._shard_config()
        shard = GroupShard(config, hosted.number)
        shard.settings_changed(config, self._own_configs(config))
        return shard

    def _shard_config(self) -> GroupConfig:
        limit = self._broker.partitions.topic_settings(OFFSETS_TOPIC).int("max.message.bytes")
        return replace(self.config, record_bytes_max=limit)

    def _new_topic(self) -> NewTopic:
        broker, settings = self._broker, self._broker.settings
        factor = settings.int("offsets.topic.replication.factor")
        return NewTopic(
            OFFSETS_TOPIC,
            settings.int("offsets.topic.num.partitions"),
            # Fewer where there is one broker: it must have groups too. In a cluster, others may only be late.
            factor if broker.is_in_cluster else min(factor, len(broker.image.brokers)),
            config={
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(settings.int("offsets.topic.segment.bytes")),
            },
        )

    @property
    def _codec(self) -> int:
        return self.compression

    @property
    def _load_piece_bytes(self) -> int:
        return self._broker.settings.int("offsets.load.buffer.size")

    @property
    def _commit_timeout_ms(self) -> int:
        return self._broker.settings.int("offsets.commit.timeout.ms")

    def _begin(self, hosted: HostedShard[GroupShard], shard: GroupShard) -> None:
        now = self.now()
        if shard.groups.by_id:
            logger.info("%s-%d: %d groups loaded", OFFSETS_TOPIC, hosted.number, len(shard.groups.by_id))
        self.perform(hosted, shard.topics_changed(self._broker.image, now))
        if hosted.shard is shard:
            self.perform(hosted, shard.on_loaded(now))

    def _settle(self, shard: GroupShard, producer_id: int, *, commit: bool) -> None:
        shard.settle(producer_id, commit=commit)

    # Transactions

    def check_loaded(self, number: int) -> None:
        """That a marker may be written to a partition of offsets now: its offsets must be known. KafkaError if not."""
        hosted = self._hosted.get(number)
        if hosted is None or hosted.shard is None:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"the groups of {OFFSETS_TOPIC}-{number} are being loaded")

    def settle(self, number: int, producer_id: int, *, commit: bool) -> None:
        """A marker has been written to a partition of offsets: what the producer committed for groups counts now, or never."""
        hosted = self._hosted.get(number)
        if hosted is not None and hosted.shard is not None:
            hosted.shard.settle(producer_id, commit=commit)

    # Following image, settings and time

    def apply(self, image: ClusterImage, led: Mapping[int, int] | None = None) -> None:
        before = self._topic
        configs, self._group_configs = self._group_configs, image.group_configs
        super().apply(image, led)
        if self._topic is not before or configs != self._group_configs:
            self._configure()
        now = self.now()
        for hosted in list(self._hosted.values()):
            if hosted.shard is not None:
                self.perform(hosted, hosted.shard.topics_changed(image, now))

    def settings_changed(self, settings: BrokerSettings) -> None:
        self.config = group_config(settings)
        self.compression = settings.int("offsets.topic.compression.codec")
        self._configure()

    def _configure(self) -> None:
        config = self._shard_config()
        own = self._own_configs(config)
        for hosted in self._hosted.values():
            if hosted.shard is not None:
                hosted.shard.settings_changed(config, own)

    def _own_configs(self, config: GroupConfig) -> dict[str, GroupConfig]:
        """Of groups with settings of their own."""
        settings = self._broker.settings
        return {group_id: own_group_config(config, overrides, settings) for group_id, overrides in self._group_configs.items()}

    def _schedule_expiry(self) -> None:
        interval_ms = self._broker.settings.int("offsets.retention.check.interval.ms")
        self._expiry = self._loop.call_later(interval_ms / 1000, self._expire)

    def _expire(self) -> None:
        self._schedule_expiry()
        wall_ms = self._broker.clock_watch.now_ms()
        for hosted in list(self._hosted.values()):
            if hosted.shard is not None:
                self.perform(hosted, hosted.shard.expire_offsets(wall_ms))


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
    """What a group has that sets something of its own."""

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
    """A random (version 4) uuid in the form Java prints."""
    raw = bytearray(random)
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
