"""The immutable image of a cluster: brokers, topics, partitions and dynamic configs at one moment.

A change makes another image, which shares the objects that are the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

__all__ = ["INTERNAL_TOPICS", "NO_LEADER", "BrokerImage", "ClusterImage", "Endpoint", "PartitionImage", "TopicImage"]
NO_LEADER: Final = -1
INTERNAL_TOPICS: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})


@dataclass(frozen=True, slots=True)
class PartitionImage:
    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...]
    partition_epoch: int = 0
    """The version of the partition's state node; an AlterPartition names the one it is based on."""
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment adds; they are in `replicas` already."""
    removing: tuple[int, ...] = ()
    """Replicas that a reassignment removes; they are in `replicas` still."""
    recovering: bool = False
    """The leader was elected from outside the ISR and has not finished its recovery (KIP-704)."""
    offline: tuple[int, ...] = ()
    """Replicas of running brokers whose data directory failed. Known to the controller, not stored."""


@dataclass(frozen=True, slots=True)
class TopicImage:
    name: str
    topic_id: bytes
    partitions: tuple[PartitionImage, ...]
    config: Mapping[str, str] = field(default_factory=dict)

    @property
    def internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class BrokerImage:
    id: int
    epoch: int
    rack: str | None
    endpoints: tuple[Endpoint, ...]
    transaction_version: int = 2
    """The highest level of the feature transaction.version: 2 for Ottla; Apache Kafka 3.9 on ZooKeeper has none, which is 0."""

    def endpoint(self, listener: str) -> Endpoint | None:
        """The endpoint of a listener."""
        for endpoint in self.endpoints:
            if endpoint.listener == listener:
                return endpoint
        return None


@dataclass(frozen=True, slots=True)
class ClusterImage:
    cluster_id: str
    controller_id: int = -1
    brokers: Mapping[int, BrokerImage] = field(default_factory=dict)
    topics: Mapping[str, TopicImage] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    broker_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Dynamic configs by broker id as text; "" is the cluster-wide default."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Configs by group id, of groups that have any."""
    client_metrics: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Configs by name of the client metrics subscription, of those that have any."""
    shutting_down: frozenset[int] = frozenset()
    """Brokers in a controlled shutdown."""

    @property
    def placement_candidates(self) -> Mapping[int, BrokerImage]:
        """The brokers that may get new replicas: those that are not shutting down."""
        if not self.shutting_down:
            return self.brokers
        return {number: broker for number, broker in self.brokers.items() if number not in self.shutting_down}

    def topic_by_id(self, topic_id: bytes) -> TopicImage | None:
        name = self.topic_names.get(topic_id)
        return None if name is None else self.topics[name]

    def with_topics(self, changed: Collection[TopicImage], removed: Collection[str] = ()) -> ClusterImage:
        if not changed and not removed:
            return self
        topics, names = dict(self.topics), dict(self.topic_names)
        for name in removed:
            del names[topics.pop(name).topic_id]
        for topic in changed:
            topics[topic.name] = topic
            names[topic.topic_id] = topic.name
        return replace(self, topics=topics, topic_names=names)

    def with_broker_config(self, name: str, config: Mapping[str, str]) -> ClusterImage:
        return replace(self, broker_configs={**self.broker_configs, name: config})

    def with_group_config(self, name: str, config: Mapping[str, str]) -> ClusterImage:
        return replace(self, group_configs=_with(self.group_configs, name, config))

    def with_client_metrics(self, name: str, config: Mapping[str, str]) -> ClusterImage:
        return replace(self, client_metrics=_with(self.client_metrics, name, config))

    def dynamic_config(self, broker_id: int) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """(dynamic configs of a broker, of the whole cluster): the arguments of `BrokerSettings.with_dynamic`."""
        return self.broker_configs.get(str(broker_id), {}), self.broker_configs.get("", {})


def _with(known: Mapping[str, Mapping[str, str]], name: str, config: Mapping[str, str]) -> dict[str, Mapping[str, str]]:
    """Without configs, there is no entry."""
    others = {other: configs for other, configs in known.items() if other != name}
    return {**others, name: config} if config else others


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An address of a broker."""

    listener: str
    host: str
    """Empty means every interface."""
    port: int
    security_protocol: str = "PLAINTEXT"

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.listener}://{host}:{self.port}"
