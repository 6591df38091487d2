"""Fixtures of the compatibility tests: one broker for the session, fresh topic names.

Also makes `peers` (the real counterparts) and `subject` (the broker under test) importable below this folder.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.kit.subject import Subject, running, soon

_numbers = itertools.count()


@pytest.fixture(scope="session")
def subject() -> Iterator[Subject]:
    with running() as broker:
        yield broker


@pytest.fixture
def bootstrap(subject: Subject) -> str:
    return subject.bootstrap_servers


@pytest.fixture
def new_topic(subject: Subject) -> Callable[..., str]:
    """Creates a topic, whatever client is tested: `new_topic(partitions=3, **{"max.message.bytes": "1000"})`."""
    from confluent_kafka.admin import AdminClient, NewTopic

    def create(partitions: int = 1, **config: Any) -> str:
        name = f"t{next(_numbers)}-{os.getpid()}"
        admin = AdminClient({"bootstrap.servers": subject.bootstrap_servers})
        (created,) = admin.create_topics(
            [NewTopic(name, partitions, subject.replicas, config={k: str(v) for k, v in config.items()})]
        ).values()
        created.result(60)
        assert soon(lambda: name in admin.list_topics(timeout=60).topics)
        return name

    return create


@pytest.fixture
def topic(new_topic: Callable[..., str]) -> str:
    return new_topic()
