"""Fixtures of the compatibility tests: one broker for the session, fresh topic names.

Also makes `peers` (the real counterparts) and `subject` (the broker under test) importable below this folder.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterator

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

    def create(partitions: int = 1, **config: str) -> str:
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


@pytest.fixture
def eventually() -> Callable[..., None]:
    """Waits until the condition holds; clients need their time."""

    def wait(condition: Callable[[], bool], within_s: float = 90, *, what: str = "") -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, what or "it did not happen in time"
            time.sleep(0.02)

    return wait
