"""The image that a broker of a cluster answers from, as the controller sends it by UpdateMetadata.

Owns the image and the configs in it. UpdateMetadata has no configs: they are read from the metadata store when a topic first
appears, and changed by `configure_topic` and `configure_brokers`. Leaders come from the controller only, never from the store.

1. The image is complete: a topic appears together with its configs, a broker with its transaction version.
2. The leader epoch of a partition never decreases, whatever request comes late (C10). A deleted topic does not reappear, and its
   deletion does not remove another topic of that name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from ottla.broker.metadata.tree import topic_config
from ottla.cluster import znodes
from ottla.cluster.control_requests import DELETED
from ottla.cluster.image import NO_LEADER, BrokerImage, ClusterImage, Endpoint, PartitionImage, TopicImage
from ottla.ports import MetadataStore, StoreError
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.types import ZERO_UUID

TopicStateT = TypeVar("TopicStateT")

_DELETED_MAX: Final = 10_000
_NO_PARTITION: Final = PartitionImage(NO_LEADER, -1, (), (), -1)
_SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class MetadataCache:
    def __init__(self, cluster_id: str, store: MetadataStore, on_image: Callable[[ClusterImage], None]) -> None:
        self.image = ClusterImage(cluster_id)
        self._store = store
        self._on_image = on_image
        self._topic_configs: dict[str, Mapping[str, str]] = {}
        self._config_ids: dict[str, bytes] = {}
        """The topic id whose configs were read, by name."""
        self._deleted: dict[bytes, None] = {}
        """Ids of the topics that were deleted last, the oldest first."""
        self._transaction_versions: dict[int, int] = {}
        """Of live brokers, from their registrations: UpdateMetadata does not have it."""

    async def topic_config(self, name: str, topic_id: bytes) -> Mapping[str, str]:
        """The configs of a topic, read if they are not known. StoreError if that fails."""
        if topic_id not in (ZERO_UUID, self._config_ids.get(name, topic_id)):
            self.forget_config(name)
        config = self._topic_configs.get(name)
        if config is None:
            self._config_ids[name] = topic_id
            config = self._topic_configs.setdefault(name, await topic_config(self._store, name))
        return config

    def with_present_config(self, topic: TopicImage) -> TopicImage:
        """With the configs as they are now: they may have changed since the topic was read."""
        config = self._topic_configs.get(topic.name, topic.config)
        return topic if config is topic.config else replace(topic, config=config)

    def forget_config(self, name: str) -> None:
        """Forget the configs of a deleted topic: another of that name may have others."""
        self._topic_configs.pop(name, None)
        self._config_ids.pop(name, None)

    async def update(self, request: UpdateMetadataRequest, *, whole: bool = False) -> None:
        """Apply an UpdateMetadata; the caller has checked the controller epoch. `whole`: it names every topic of the cluster."""
        topics = grouped(request, UpdateMetadataTopicState)
        for update in topics:
            # The configs of a topic that is deleted must not be kept for the next topic of that name.
            if not _is_deletion(update) and (whole or bytes(update.topic_id) not in self._deleted):
                await self.topic_config(update.topic_name, bytes(update.topic_id))
        live = [_broker(broker) for broker in request.live_brokers]
        await self._learn_transactions(live)
        image = self.image
        if live:
            versions = self._transaction_versions
            image = replace(image, brokers={one.id: replace(one, transaction_version=versions.get(one.id, 0)) for one in live})
        image = replace(image, controller_id=request.controller_id)
        changed: list[TopicImage] = []
        updated_names = {update.topic_name for update in topics}
        removed: list[str] = [name for name in image.topics if name not in updated_names] if whole else []
        for update in topics:
            known = image.topics.get(update.topic_name)
            if self._is_late(update, whole=whole):
                continue
            if known is not None and update.topic_id not in (ZERO_UUID, known.topic_id):
                removed.append(known.name)  # another topic of that name
                known = None
            topic = _topic(known, update, self._topic_configs.get(update.topic_name, {}))
            if topic is not None:
                changed.append(topic)
            elif known is not None:
                removed.append(known.name)
        self._publish(image.with_topics(changed, removed))
        for name in removed:
            if name not in self.image.topics:
                self.forget_config(name)

    def _is_late(self, update: UpdateMetadataTopicState, *, whole: bool) -> bool:
        """Whether the topic was deleted before, by its id."""
        topic_id = bytes(update.topic_id)
        was_deleted = topic_id in self._deleted
        if whole:
            self._deleted.pop(topic_id, None)
            return False
        if topic_id != ZERO_UUID and _is_deletion(update):
            self._deleted[topic_id] = None
            if len(self._deleted) > _DELETED_MAX:
                del self._deleted[next(iter(self._deleted))]
        return was_deleted

    async def _learn_transactions(self, live: list[BrokerImage]) -> None:
        """Read the registrations of new or changed brokers. One that cannot be read counts as transaction version 0."""
        for broker in live:
            shown = self.image.brokers.get(broker.id)
            if broker.id in self._transaction_versions and shown is not None and shown.endpoints == broker.endpoints:
                continue
            self._transaction_versions.pop(broker.id, None)
            try:
                node = await self._store.get(znodes.broker_path(broker.id))
                if node is not None:
                    registered = znodes.decode_broker(broker.id, node.data, node.czxid)
                    self._transaction_versions[broker.id] = registered.transaction_version
            except StoreError:
                continue

    def configure_topic(self, name: str, config: Mapping[str, str]) -> None:
        """Apply changed configs. Those of an unknown topic are ignored: they are read when the topic appears."""
        if name not in self.image.topics and name not in self._topic_configs:
            return
        self._topic_configs[name] = dict(config)
        topic = self.image.topics.get(name)
        if topic is not None and topic.config != config:
            self._publish(self.image.with_topics([replace(topic, config=dict(config))]))

    def begin(self, brokers: Mapping[int, BrokerImage], controller_id: int) -> None:
        """Use the registrations until the first UpdateMetadata: clients must not be told that there are no brokers."""
        if not self.image.brokers:
            self._transaction_versions = {broker.id: broker.transaction_version for broker in brokers.values()}
            self._publish(replace(self.image, brokers=dict(brokers), controller_id=controller_id))

    def configure_brokers(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Apply the dynamic configs of all brokers; "" is the cluster-wide default."""
        if configs != self.image.broker_configs:
            self._publish(replace(self.image, broker_configs=dict(configs)))

    def configure_groups(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Apply the configs of all groups that have any."""
        if configs != self.image.group_configs:
            self._publish(replace(self.image, group_configs=dict(configs)))

    def configure_client_metrics(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Apply the configs of all client metrics subscriptions."""
        if configs != self.image.client_metrics:
            self._publish(replace(self.image, client_metrics=dict(configs)))

    def _publish(self, image: ClusterImage) -> None:
        self.image = image
        self._on_image(image)


def _is_deletion(update: UpdateMetadataTopicState) -> bool:
    return any(state.leader == DELETED for state in update.partition_states)


def grouped(request: Any, topic_state: Callable[..., TopicStateT]) -> list[TopicStateT]:
    """The states of an UpdateMetadata or LeaderAndIsr request by topic; older versions name the topic in each partition."""
    topics: dict[str, Any] = {}
    for state in request.ungrouped_partition_states:
        topic = topics.setdefault(state.topic_name, topic_state(topic_name=state.topic_name, topic_id=ZERO_UUID))
        topic.partition_states.append(state)
    return list(topics.values()) or request.topic_states


def _broker(update: UpdateMetadataBroker) -> BrokerImage:
    endpoints = tuple(
        Endpoint(endpoint.listener or "PLAINTEXT", endpoint.host, endpoint.port, _SECURITY_PROTOCOLS[endpoint.security_protocol])
        for endpoint in update.endpoints
        if 0 <= endpoint.security_protocol < len(_SECURITY_PROTOCOLS)
    )
    return BrokerImage(update.id, -1, update.rack, endpoints)


def _topic(known: TopicImage | None, update: UpdateMetadataTopicState, config: Mapping[str, str]) -> TopicImage | None:
    """The topic after the update; None if it is deleted."""
    partitions = list(known.partitions) if known is not None else []
    gone: set[int] = set()
    for state in update.partition_states:
        number = state.partition_index
        if state.leader == DELETED:
            gone.add(number)
            continue
        while len(partitions) <= number:
            partitions.append(_NO_PARTITION)
        if state.leader_epoch >= partitions[number].leader_epoch:
            partitions[number] = _partition(state)
    if len(gone) >= len(partitions):
        return None
    topic_id = update.topic_id if update.topic_id != ZERO_UUID or known is None else known.topic_id
    return TopicImage(update.topic_name, bytes(topic_id), tuple(partitions), config)


def _partition(state: UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        tuple(state.replicas),
        state.zk_version,
        offline=tuple(state.offline_replicas),
    )
