"""Shared by the client tests: a broker, topics, and an interceptor that records its calls."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import KafkaError, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from ottla.client import Interceptor, ProducerRecord, RecordMetadata
from ottla.testing import Broker


@contextmanager
def broker_address() -> Iterator[str]:
    """The bootstrap servers of an Ottla broker, or CLIENT_TEST_BOOTSTRAP_SERVERS."""
    other = os.environ.get("CLIENT_TEST_BOOTSTRAP_SERVERS")
    if other:
        yield other
        return
    # No retention check: records with timestamps of 2023 must stay until they are read.
    keeping = {"log.initial.task.delay.ms": 86_400_000, "log.retention.check.interval.ms": 86_400_000}
    with Broker({"group.initial.rebalance.delay.ms": 0, **keeping}) as broker:
        yield broker.bootstrap_servers


def new_topic(address: str, partitions: int = 1, **config: Any) -> str:
    name = f"client-{uuid.uuid4().hex[:8]}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name].result(60)
    return name


class Watch(Interceptor):
    def __init__(self) -> None:
        self.sent = 0
        self.acknowledged: list[tuple[RecordMetadata, KafkaError | None]] = []
        self.handed_over: list[list[Message]] = []
        self.committed: list[tuple[list[TopicPartition], KafkaError | None]] = []
        self.closed = 0

    def before_send(self, record: ProducerRecord) -> ProducerRecord:
        self.sent += 1
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: KafkaError | None) -> None:
        self.acknowledged.append((metadata, error))

    def before_handover(self, messages: list[Message]) -> list[Message]:
        self.handed_over.append(messages)
        return messages

    def on_commit(self, offsets: list[TopicPartition], error: KafkaError | None) -> None:
        self.committed.append((offsets, error))

    def close(self) -> None:
        self.closed += 1
