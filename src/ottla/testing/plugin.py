"""The pytest plugin: a broker for the session, with or without security, a topic for each test, a schema registry, a Spark
session.

Override `ottla_broker_settings` in a conftest to give the broker settings:

    @pytest.fixture(scope="session")
    def ottla_broker_settings():
        return {"num.partitions": 3}

Every pytest run loads it where Ottla is installed, so it imports nothing until a fixture is used.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla.testing.broker import Broker
    from ottla.testing.registry import Registry

_TOPIC_LENGTH_MAX = 249


@pytest.fixture(scope="session")
def ottla_broker_settings() -> Mapping[str, Any]:
    """Settings of the session's broker, by Kafka's names."""
    return {}


@pytest.fixture(scope="session")
def ottla_broker(ottla_broker_settings: Mapping[str, Any]) -> Iterator[Broker]:
    """A running broker for the whole session; `.bootstrap_servers` is its address."""
    from ottla.testing.broker import Broker

    with Broker(ottla_broker_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def ottla_security() -> Any:
    """Security of `ottla_secure_broker`: a protocol, or an `ottla.testing.Security`."""
    return "SASL_SSL"


@pytest.fixture(scope="session")
def ottla_secure_broker(ottla_broker_settings: Mapping[str, Any], ottla_security: Any) -> Iterator[Broker]:
    """A running broker with TLS, users and ACLs for the whole session; `.client_config("alice")` is the login of a user."""
    from ottla.testing.broker import Broker

    with Broker(ottla_broker_settings, security=ottla_security) as broker:
        yield broker


@pytest.fixture(scope="session")
def ottla_spark() -> Iterator[SparkSession]:
    """A Spark session of this machine for the whole session: what `ottla.testing.run_flow` uses. It starts in seconds, once."""
    from ottla.testing.flows import small_spark

    with small_spark() as spark:
        yield spark


@pytest.fixture
def ottla_topic(ottla_broker: Broker, request: pytest.FixtureRequest) -> Iterator[str]:
    """The name of a topic with one partition that exists for this test only."""
    name = topic_name(request.node.name)
    # An earlier test may have stopped or killed the broker.
    ottla_broker.start().create_topic(name)
    yield name
    if ottla_broker.running:
        ottla_broker.delete_topic(name, if_exists=True)


@pytest.fixture(scope="session")
def ottla_registry(ottla_broker: Broker) -> Iterator[Registry]:
    """A running schema registry on `ottla_broker` for the whole session; `.url` is its address. Needs `ottla[registry]`."""
    from ottla.testing.registry import Registry

    with Registry(ottla_broker) as registry:
        yield registry


def topic_name(test: str) -> str:
    """A new topic name that contains the name of the test."""
    unique = uuid.uuid4().hex[:8]
    readable = re.sub(r"[^A-Za-z0-9._-]+", "-", test).strip("-.")[: _TOPIC_LENGTH_MAX - len(unique) - 1]
    return f"{readable}-{unique}" if readable else unique
