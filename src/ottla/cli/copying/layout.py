"""Partitions, replicas and own settings of a topic, and a new topic with the same."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ottla.cli.config import describe_settings
from ottla.cli.connection import REQUEST_TIMEOUT_S, Connection, result_of

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
    from confluent_kafka.admin import ConfigSource

    found = connection.topic(topic)
    settings = describe_settings(connection, "topic", topic)
    config = {
        str(name): str(entry.value)
        for name, entry in sorted(settings.items())
        if ConfigSource(entry.source) is ConfigSource.DYNAMIC_TOPIC_CONFIG and entry.value is not None and name not in _OF_A_MOVE
    }
    replicas = max((len(partition.replicas) for partition in found.partitions.values()), default=1)
    return Layout(len(found.partitions), replicas, config)


def create_topic(connection: Connection, topic: str, layout: Layout) -> None:
    from confluent_kafka.admin import NewTopic

    new = NewTopic(topic, layout.partitions, layout.replication_factor, config=layout.config)
    futures = connection.admin.create_topics([new], operation_timeout=REQUEST_TIMEOUT_S, request_timeout=REQUEST_TIMEOUT_S)
    result_of(futures[topic], f"topic {topic}")


def topic_id(connection: Connection, topic: str) -> str:
    from confluent_kafka import TopicCollection

    described = result_of(connection.admin.describe_topics(TopicCollection([topic]))[topic], f"topic {topic}")
    return str(described.topic_id)
