"""The commands against a real broker: Ottla's, unless CLI_TEST_BOOTSTRAP_SERVERS names another Kafka (they work with any)."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator

import pytest

from ottla.testing import Broker
from tests.kit.ottla_command import Ottla


@pytest.fixture(scope="session")
def ottla() -> Iterator[Ottla]:
    other = os.environ.get("CLI_TEST_BOOTSTRAP_SERVERS")
    if other:
        yield Ottla(other)
        return
    # Kafka waits three seconds for more members before a group starts; nobody else comes here. And nobody looks for old records:
    # those of 2023 must not be gone between two commands.
    keeping = {"log.initial.task.delay.ms": 86_400_000, "log.retention.check.interval.ms": 86_400_000}
    with Broker({"group.initial.rebalance.delay.ms": 0, **keeping}) as broker:
        yield Ottla(broker.bootstrap_servers)


@pytest.fixture
def topic(ottla: Ottla) -> Iterator[str]:
    """A topic with three partitions for one test."""
    name = f"cli-{uuid.uuid4().hex[:8]}"
    ottla.ok("topic", "create", name, "-p", "3")
    yield name
    ottla.run("topic", "delete", name, "--if-exists")
