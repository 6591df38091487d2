"""A console for the tests of a session, on Ottla; `make reference` runs the same on Apache Kafka."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest

from tests.console.running import RunningConsole, running_console
from tests.kit.ottla_command import Ottla
from tests.kit.subject import EITHER, Subject, running

AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"


@pytest.fixture(scope="session", params=EITHER)
def subject(request: pytest.FixtureRequest) -> Iterator[Subject]:
    """A broker on which everybody may do everything, with ACLs."""
    with running(
        request.param,
        brokers=1,
        authorizer_class_name=AUTHORIZER,
        super_users="User:ANONYMOUS",
        offsets_topic_num_partitions=5,
        transaction_state_log_num_partitions=5,
    ) as broker:
        yield broker


@pytest.fixture(scope="session")
def console(subject: Subject) -> Iterator[RunningConsole]:
    with running_console(subject.bootstrap_servers) as console:
        yield console


@pytest.fixture
def ottla(subject: Subject) -> Ottla:
    return Ottla(subject.bootstrap_servers)


@pytest.fixture
def topic(ottla: Ottla) -> Iterator[str]:
    """A topic with three partitions for one test."""
    name = f"console-{uuid.uuid4().hex[:8]}"
    ottla.ok("topic", "create", name, "-p", "3")
    yield name
    ottla.run("topic", "delete", name, "--if-exists")
