"""Partitions, replicas and own settings of a topic, and a new topic with the same."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Any

from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, check_not_internal, result_of

_OF_A_MOVE = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")
"""Settings that a running reassignment sets: they name brokers."""


@dataclass(frozen=True, slots=True)
class Layout:
    partitions: int
    replication_factor: int
    config: dict[str, str]

    def document(self) -> dict[str, Any]:
        return {"partitions": self.partitions, "replication_factor": self.replication_factor, "config": self.config}


def layout_of(connection: Connection, topic: str) -> Layout:
    return layouts_of(connection, [topic])[topic]


def layouts_of(connection: Connection, topics: Iterable[str]) -> dict[str, Layout]:
    """The layouts of topics, with one request for the settings of all."""
    from confluent_kafka.admin import ConfigResource, ConfigSource, ResourceType

    found = {str(each.topic): each for each in connection.topics(topics)}
    resources = [ConfigResource(ResourceType.TOPIC, topic) for topic in found]
    if not resources:
        return {}
    layouts = {}
    for resource, future in connection.admin.describe_configs(resources, request_timeout=REQUEST_TIMEOUT_S).items():
        settings = result_of(future, f"settings of topic {resource.name}")
        config = {
            str(name): str(entry.value)
            for name, entry in sorted(settings.items())
            if ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG
            and entry.value is not None
            and name not in _OF_A_MOVE
        }
        partitions = found[resource.name].partitions
        replicas = max((len(partition.replicas) for partition in partitions.values()), default=1)
        layouts[resource.name] = Layout(len(partitions), replicas, config)
    return layouts


def create_topic(connection: Connection, topic: str, layout: Layout) -> None:
    from confluent_kafka.admin import NewTopic

    check_not_internal([topic])
    new = NewTopic(topic, layout.partitions, layout.replication_factor, config=layout.config)
    futures = connection.admin.create_topics([new], operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S)
    result_of(futures[topic], f"topic {topic}")


def topic_id(connection: Connection, topic: str) -> str:
    return topic_ids(connection, [topic])[topic]


def topic_ids(connection: Connection, topics: Collection[str]) -> dict[str, str]:
    from confluent_kafka import TopicCollection

    if not topics:
        return {}
    described = connection.admin.describe_topics(TopicCollection(list(topics)), request_timeout=REQUEST_TIMEOUT_S)
    return {topic: str(result_of(future, f"topic {topic}").topic_id) for topic, future in described.items()}
