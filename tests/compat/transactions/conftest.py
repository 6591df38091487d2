"""A broker for the tests of transactions by real clients, and what they all need: topics, readers of both isolation levels."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit.subject import Subject, running

with warnings.catch_warnings():
    # Importing kafka-python uses importlib.resources in a way that Python 3.11 frowns on.
    warnings.simplefilter("ignore")
    import kafka  # noqa: F401


_numbers = itertools.count()

Read = Callable[..., list[bytes]]


@pytest.fixture(scope="session")
def txn_subject() -> Iterator[Subject]:
    with running(group_initial_rebalance_delay_ms=0) as broker:
        yield broker


@pytest.fixture
def servers(txn_subject: Subject) -> str:
    return txn_subject.bootstrap_servers


@pytest.fixture
def name() -> str:
    """A fresh one, for ids and groups."""
    return f"txn-{next(_numbers)}-{os.getpid()}"


@pytest.fixture
def make_topic(servers: str, txn_subject: Subject) -> Callable[..., str]:
    def create(partitions: int = 1) -> str:
        topic = f"t{next(_numbers)}-{os.getpid()}"
        admin = AdminClient({"bootstrap.servers": servers})
        admin.create_topics([NewTopic(topic, partitions, txn_subject.replicas)])[topic].result(60)
        return topic

    return create


@pytest.fixture
def read(servers: str) -> Read:
    """All values of a topic, partition by partition, as far as the isolation level lets one read."""

    def read_all(topic: str, isolation: str = "read_committed", partitions: int = 1) -> list[bytes]:
        consumer = Consumer(
            {
                "bootstrap.servers": servers,
                "group.id": "reader",
                "isolation.level": isolation,
                "enable.partition.eof": True,
                "enable.auto.commit": False,
            }
        )
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
        values: dict[int, list[bytes]] = {partition: [] for partition in range(partitions)}
        ended: set[int] = set()
        while len(ended) < partitions:
            message = consumer.poll(60)
            assert message is not None, f"neither a record nor the end of {topic}"
            error = message.error()
            if error is None:
                values[message.partition() or 0].append(message.value() or b"")
            else:
                assert error.code() == KafkaError._PARTITION_EOF
                ended.add(message.partition() or 0)
        consumer.close()
        return [value for partition in range(partitions) for value in values[partition]]

    return read_all


@pytest.fixture
def fill(servers: str) -> Callable[[str, int], None]:
    """Numbers, written without a transaction."""

    def write(topic: str, count: int) -> None:
        producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
        for number in range(count):
            producer.produce(topic, b"%d" % number)
        assert producer.flush(60) == 0

    return write
