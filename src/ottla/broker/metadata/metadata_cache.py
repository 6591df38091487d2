"""The picture of the cluster that a broker of several answers from, as the controller tells it (UpdateMetadata).

Owns the image, and the settings of topics and brokers in it: those are not told but kept in the metadata store, where this reads
them when a topic is first heard of; later changes come through `configure_topic` and `configure_brokers`. Never asks the store
who leads: only the controller says so, in its order.

1. What is shown is complete: a topic appears together with its settings, a broker with the transactions it can do.
2. A partition's leader epoch never goes back, whatever order arrives late (C10); nor does a topic that was deleted come back, nor
   does another of its name go with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from ottla.cluster import znodes
from ottla.cluster.control_requests import DELETED
from ottla.cluster.endpoint import Endpoint
from ottla.cluster.image import NO_LEADER, BrokerImage, ClusterImage, PartitionImage, TopicImage
from ottla.ports import MetadataStore, StoreError
from ottla.protocol.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from ottla.types import ZERO_UUID

_DELETED_MAX: Final = 10_000
_NO_PARTITION: Final = PartitionImage(NO_LEADER, -1, (), (), -1)
_SECURITY_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class MetadataCache:
    def __init__(self, cluster_id: str, store: MetadataStore, show: Callable[[ClusterImage], None]) -> None:
        self.image = ClusterImage(cluster_id)
        self._store = store
        self._show = show
        self._topic_configs: dict[str, Mapping[str, str]] = {}
        self._config_ids: dict[str, bytes] = {}
        """Of which topic of its name the settings were read."""
        self._deleted: dict[bytes, None] = {}
        """Ids of the topics that were deleted last."""
        self._transaction_versions: dict[int, int] = {}
        """Of the brokers that live, as they registered: the controller does not tell."""

    async def topic_config(self, name: str, topic_id: bytes) -> Mapping[str, str]:
        """Known, or read now. StoreError if that cannot be done. Another topic of the same name may have others."""
        if topic_id not in (ZERO_UUID, self._config_ids.get(name, topic_id)):
            self.forget_config(name)
        config = self._topic_configs.get(name)
        if config is None:
            self._config_ids[name] = topic_id
            path = znodes.topic_config_path(name)
            node = await self._store.get(path)
            config = znodes.decode_config(path, node.data) if node is not None else {}
            config = self._topic_configs.setdefault(name, config)
        return config

    def with_present_config(self, topic: TopicImage) -> TopicImage:
        """Its settings may have changed since they were read."""
        config = self._topic_configs.get(topic.name, topic.config)
        return topic if config is topic.config else replace(topic, config=config)

    def forget_config(self, name: str) -> None:
        """Of a topic that is gone: one of the same name may have others."""
        self._topic_configs.pop(name, None)
        self._config_ids.pop(name, None)

    async def update(self, request: UpdateMetadataRequest, *, whole: bool = False) -> None:
        """What the controller tells; the caller has checked that it is the controller. `whole`: it tells of every topic."""
        topics = _grouped(request)
        for told in topics:
            # Of one that goes, or is gone, they are gone too: nothing read now may be kept for the next of its name.
            if not _is_deletion(told) and (whole or bytes(told.topic_id) not in self._deleted):
                await self.topic_config(told.topic_name, bytes(told.topic_id))
        live = [_broker(broker) for broker in request.live_brokers]
        await self._learn_transactions(live)
        image = self.image
        if live:
            versions = self._transaction_versions
            image = replace(image, brokers={one.id: replace(one, transaction_version=versions.get(one.id, 0)) for one in live})
        image = replace(image, controller_id=request.controller_id)
        changed: list[TopicImage] = []
        told_names = {told.topic_name for told in topics}
        removed: list[str] = [name for name in image.topics if name not in told_names] if whole else []
        for told in topics:
            known = image.topics.get(told.topic_name)
            if self._is_late(told, whole=whole):
                continue
            if known is not None and told.topic_id not in (ZERO_UUID, known.topic_id):
                removed.append(known.name)  # another of the same name
                known = None
            topic = _topic(known, told, self._topic_configs.get(told.topic_name, {}))
            if topic is not None:
                changed.append(topic)
            elif known is not None:
                removed.append(known.name)
        self._become(image.with_topics(changed, removed))
        for name in removed:
            if name not in self.image.topics:
                self.forget_config(name)

    def _is_late(self, told: UpdateMetadataTopicState, *, whole: bool) -> bool:
        """Whether it is of a topic that was deleted before, by its id: there may be another of that name now."""
        topic_id = bytes(told.topic_id)
        was_deleted = topic_id in self._deleted
        if whole:
            self._deleted.pop(topic_id, None)
            return False
        if topic_id != ZERO_UUID and _is_deletion(told):
            self._deleted[topic_id] = None
            if len(self._deleted) > _DELETED_MAX:
                del self._deleted[next(iter(self._deleted))]
        return was_deleted

    async def _learn_transactions(self, live: list[BrokerImage]) -> None:
        """What brokers that are new, or have moved, wrote of themselves. One that cannot be read now can do little for now."""
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
        """Settings have changed. Of a topic nobody told of they are not kept: it may be one that is gone, with another one of its
        name to come; whoever tells of that one has them read."""
        if name not in self.image.topics and name not in self._topic_configs:
            return
        self._topic_configs[name] = dict(config)
        topic = self.image.topics.get(name)
        if topic is not None and topic.config != config:
            self._become(self.image.with_topics([replace(topic, config=dict(config))]))

    def begin(self, brokers: Mapping[int, BrokerImage], controller_id: int) -> None:
        """What the metadata store says, for the moment before the controller says more: clients that come at once must not be
        told that there is nobody."""
        if not self.image.brokers:
            self._transaction_versions = {broker.id: broker.transaction_version for broker in brokers.values()}
            self._become(replace(self.image, brokers=dict(brokers), controller_id=controller_id))

    def configure_brokers(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Dynamic settings of all brokers; "" holds those of every one."""
        if configs != self.image.broker_configs:
            self._become(replace(self.image, broker_configs=dict(configs)))

    def configure_groups(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Settings of all groups that have any."""
        if configs != self.image.group_configs:
            self._become(replace(self.image, group_configs=dict(configs)))

    def _become(self, image: ClusterImage) -> None:
        self.image = image
        self._show(image)


def _is_deletion(told: UpdateMetadataTopicState) -> bool:
    return any(state.leader == DELETED for state in told.partition_states)


def _grouped(request: UpdateMetadataRequest) -> list[UpdateMetadataTopicState]:
    """By topic, also of versions that name the topic in each partition."""
    if not request.ungrouped_partition_states:
        return request.topic_states
    topics: dict[str, UpdateMetadataTopicState] = {}
    for state in request.ungrouped_partition_states:
        topic = topics.setdefault(
            state.topic_name, UpdateMetadataTopicState(topic_name=state.topic_name, topic_id=ZERO_UUID, partition_states=[])
        )
        topic.partition_states.append(state)
    return list(topics.values())


def _broker(told: UpdateMetadataBroker) -> BrokerImage:
    endpoints = tuple(
        Endpoint(endpoint.listener or "PLAINTEXT", endpoint.host, endpoint.port, _SECURITY_PROTOCOLS[endpoint.security_protocol])
        for endpoint in told.endpoints
        if 0 <= endpoint.security_protocol < len(_SECURITY_PROTOCOLS)
    )
    return BrokerImage(told.id, -1, told.rack, endpoints)


def _topic(known: TopicImage | None, told: UpdateMetadataTopicState, config: Mapping[str, str]) -> TopicImage | None:
    """The topic with what is told of it; None if nothing of it is left."""
    partitions = list(known.partitions) if known is not None else []
    gone: set[int] = set()
    for state in told.partition_states:
        number = state.partition_index
        if state.leader == DELETED:
            gone.add(number)
            continue
        while len(partitions) <= number:
            partitions.append(_NO_PARTITION)
        if state.leader_epoch >= partitions[number].leader_epoch:
            partitions[number] = _partition(state)
    if len(gone) >= len(partitions):
        return None  # a topic is deleted whole
    topic_id = told.topic_id if told.topic_id != ZERO_UUID or known is None else known.topic_id
    return TopicImage(told.topic_name, bytes(topic_id), tuple(partitions), config)


def _partition(state: UpdateMetadataPartitionState) -> PartitionImage:
    return PartitionImage(
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        tuple(state.replicas),
        state.zk_version,
        offline=tuple(state.offline_replicas),
    )
