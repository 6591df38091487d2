"""What a broker reads of Java's login configuration: its login at ZooKeeper, and nothing else, which it says."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from ottla.broker.metadata.open_store import zookeeper_security
from ottla.cluster.settings import BrokerSettings

FILE = """
KafkaServer { org.apache.kafka.common.security.plain.PlainLoginModule required user_ada="planted"; };
Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="planted"; };
"""


def test_sections_for_kafka_s_listeners_are_named_as_unused(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "broker.jaas"
    path.write_text(FILE)
    with caplog.at_level(logging.DEBUG):
        security = zookeeper_security(BrokerSettings.parse({"java.security.auth.login.config": str(path)}))
    assert (security.username, security.password) == ("kafka", "planted")
    (record,) = caplog.records
    assert record.getMessage().startswith(
        f"java.security.auth.login.config={path}: the section KafkaServer has no effect; put its "
    )
    assert "planted" not in caplog.text
