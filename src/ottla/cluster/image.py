"""The immutable picture of a cluster that a broker answers from.

Owns: what is known of brokers, topics, partitions and dynamic settings at one moment. Never changes: a change of the cluster is
another image, which shares all that stayed the same.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from ottla.cluster.endpoint import Endpoint

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
    """The version of the partition's state node: what a change of the in-sync replicas is compared with."""
    adding: tuple[int, ...] = ()
    """Replicas that a reassignment brings; among `replicas` already."""
    removing: tuple[int, ...] = ()
    """Replicas that a reassignment takes away; among `replicas` still."""
    recovering: bool = False
    """The leader came from outside the in-sync replicas and has not yet said that it is done with what follows from that."""
    offline: tuple[int, ...] = ()
    """Replicas whose data directory failed although their broker runs. Known to the controller, not stored."""


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
    """The newest generation of transactions it can do: 2 as ours; brokers of Apache Kafka 3.9 name none, which is 0."""

    def endpoint(self, listener: str) -> Endpoint | None:
        """Where a client that came by a listener finds this broker by the same."""
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
    """Dynamic settings by broker id as text; "" holds those of every broker."""
    group_configs: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    """Settings of groups that have any, by group id."""
    shutting_down: frozenset[int] = frozenset()
    """Brokers that asked the controller to let them go, and are still here."""

    @property
    def staying(self) -> Mapping[int, BrokerImage]:
        """The brokers that may be given new replicas."""
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
        others = {group: known for group, known in self.group_configs.items() if group != name}
        return replace(self, group_configs={**others, name: config} if config else others)

    def dynamic_config(self, broker_id: int) -> tuple[Mapping[str, str], Mapping[str, str]]:
        """(a broker's own dynamic settings, those of the whole cluster): the arguments of `BrokerSettings.with_dynamic`."""
        return self.broker_configs.get(str(broker_id), {}), self.broker_configs.get("", {})
