"""The group coordinators of this broker: one shard for each partition of `__consumer_offsets` that it leads (F37, G07).

Owns the expiry of offsets, who the sender of a request is, and what a marker does to offsets that a transaction committed.
Which shards are here and how their decisions are performed is `shard_host`; their topic and settings are `group_shards`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla.broker.coordinators.group_shards import OFFSETS_TOPIC
from ottla.broker.coordinators.shard_timers import Periodic
from ottla.coordinator.group.group import Caller, GroupConfig
from ottla.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla.broker.clock_watch import ClockWatch
    from ottla.broker.coordinators.group_shards import GroupShards
    from ottla.broker.coordinators.shard_host import ShardHost
    from ottla.broker.metadata.local_metadata import LocalMetadata
    from ottla.broker.network.context import RequestContext
    from ottla.cluster.image import ClusterImage, TopicImage
    from ottla.cluster.settings import BrokerSettings
    from ottla.coordinator.group.shard import GroupShard
    from ottla.ports import Random


class GroupCoordinators:
    def __init__(
        self,
        metadata: LocalMetadata,
        kind: GroupShards,
        shards: ShardHost[GroupShard],
        random: Random,
        clock_watch: ClockWatch,
    ) -> None:
        self.shards = shards
        self._kind = kind
        self._random = random
        self._clock_watch = clock_watch
        self.may_describe: Callable[[RequestContext, str], bool] | None = None
        """With an authorizer: whether the sender of a request may know of a topic."""
        self._topics: Mapping[str, TopicImage] = {}
        """Of the image that was applied last."""
        self._expiry = Periodic(lambda: metadata.settings.int("offsets.retention.check.interval.ms"), self._expire_offsets)
        self._expiry.start()

    def close(self) -> None:
        self._expiry.stop()
        self.shards.close()

    @property
    def config(self) -> GroupConfig:
        """The broker's settings of groups, without the overrides of single groups."""
        return self._kind.config

    def caller(self, context: RequestContext, member_id: str) -> Caller:
        """The sender of a request, with a new member id if it has none."""
        new_id = uuid_text(self._random.bytes(16)) if not member_id else ""
        caller = Caller(context.version, context.client_id or "", f"/{context.client_host}", new_id)
        if self.may_describe is not None:
            caller.may_describe = partial(self.may_describe, context)
        return caller

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
        reconfigured = self._kind.set_group_configs(image.group_configs)
        self.shards.apply(image, led)
        if self.shards.topic.image is not before or reconfigured:
            self._configure()
        topics, self._topics = self._topics, image.topics
        deleted = frozenset(topics.keys() - image.topics.keys()) if topics is not image.topics else frozenset()
        now = self.shards.now()
        for hosted, shard in self.shards.loaded():
            hosted.perform(shard.topics_changed(image, deleted, now))

    def settings_changed(self, settings: BrokerSettings) -> None:
        self._kind.settings_changed(settings)
        self._configure()

    def _configure(self) -> None:
        self._kind.configure(shard for _, shard in self.shards.loaded())

    def _expire_offsets(self) -> None:
        wall_ms = self._clock_watch.now_ms()
        for hosted, shard in self.shards.loaded():
            hosted.perform(shard.expire_offsets(wall_ms))


def uuid_text(random: bytes) -> str:
    """A random (version 4) UUID in Java's text form."""
    raw = bytearray(random)
    raw[6] = raw[6] & 0x0F | 0x40
    raw[8] = raw[8] & 0x3F | 0x80
    text = raw.hex()
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"
