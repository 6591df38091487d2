"""A broker whose groups come together at once, and what the tests of all clients need: records, patience, fresh names."""

from __future__ import annotations

import itertools
import os
import warnings
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.kit.subject import Subject, broker_count, running, soon

with warnings.catch_warnings():
    # Importing kafka-python uses importlib.resources in a way that Python 3.11 frowns on.
    warnings.simplefilter("ignore")
    import kafka  # noqa: F401


_numbers = itertools.count()


@pytest.fixture(scope="session")
def groups_subject() -> Iterator[Subject]:
    with running(
        group_initial_rebalance_delay_ms=0,
        group_min_session_timeout_ms=100,
        offsets_topic_replication_factor=min(3, broker_count()),
    ) as broker:
        yield broker


@pytest.fixture
def servers(groups_subject: Subject) -> str:
    return groups_subject.bootstrap_servers


@pytest.fixture
def group() -> str:
    return f"group-{next(_numbers)}-{os.getpid()}"


@pytest.fixture
def filled(servers: str, groups_subject: Subject) -> Callable[..., str]:
    """Makes a topic with `each` records in every partition, `<partition>:<number>`."""
    admin = AdminClient({"bootstrap.servers": servers})

    def make(partitions: int = 6, each: int = 20, name: str | None = None) -> str:
        topic = name or f"groups-{next(_numbers)}-{os.getpid()}"
        (created,) = admin.create_topics([NewTopic(topic, partitions, groups_subject.replicas)]).values()
        created.result(60)
        assert soon(lambda: topic in admin.list_topics(timeout=60).topics)
        producer = Producer({"bootstrap.servers": servers})
        for partition in range(partitions):
            for number in range(each):
                producer.produce(topic, f"{partition}:{number}".encode(), partition=partition)
        assert producer.flush(60) == 0
        return topic

    return make
