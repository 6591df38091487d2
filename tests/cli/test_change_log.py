"""The log of a broker tells who changed what."""

from __future__ import annotations

import logging

import pytest

from ottla.broker.handlers.change_log import log_configs
from ottla.broker.network.context import RequestContext
from ottla.cluster.requests import ConfigAlteration, ConfigChange, ConfigOperation, ResourceType
from ottla.errors import ErrorCode, KafkaError
from ottla.security.principal import Session
from ottla.testing import Broker
from tests.kit.ottla_command import Ottla

BY = "User:ANONYMOUS from 127.0.0.1 "


def test_topics_configs_quotas_and_users() -> None:
    with Broker() as broker:
        ottla = Ottla(broker.bootstrap_servers)
        ottla.ok("topic", "create", "orders", "-p", "2")
        ottla.ok("config", "set", "topic", "orders", "retention.ms=1000")
        ottla.ok("config", "unset", "topic", "orders", "retention.ms")
        ottla.ok("quota", "set", "--user", "ada", "producer_byte_rate=1000")
        ottla.ok("user", "add", "ada", "--mechanism", "SCRAM-SHA-256", "--password-file", "-", stdin="secret-word\n")
        ottla.ok("user", "remove", "ada", "--yes")
        ottla.ok("topic", "delete", "orders", "--yes")
        log = broker.log
    told = [line.partition(BY)[2] for line in log.splitlines() if BY in line]
    assert told == [
        "created topic orders with 2 partitions",
        "altered the configs of topic orders: retention.ms=1000",
        "altered the configs of topic orders: delete retention.ms",
        "altered the quotas of user ada: producer_byte_rate=1000",
        "set the SCRAM-SHA-256 credential of user ada",
        "deleted the SCRAM-SHA-256 credential of user ada",
        "deleted topic orders",
    ]
    assert "secret-word" not in log


def test_what_failed_is_not_told_and_passwords_are_hidden(caplog: pytest.LogCaptureFixture) -> None:
    context = RequestContext(0, 44, None, "IN", "10.0.0.1", 1, Session("10.0.0.1", "IN"))
    broker = ConfigAlteration(
        ResourceType.BROKER,
        "1",
        [
            ConfigChange(ConfigOperation.SET, "listener.name.in.ssl.keystore.password", "secret-word"),
            ConfigChange(ConfigOperation.SET, "listener.name.in.unknown", "secret-word"),
            ConfigChange(ConfigOperation.SET, "log.cleaner.threads", "2"),
        ],
    )
    refused = ConfigAlteration(ResourceType.TOPIC, "orders", [ConfigChange(ConfigOperation.SET, "retention.ms", "x")])
    with caplog.at_level(logging.INFO):
        log_configs(context, [broker, refused], [None, KafkaError(ErrorCode.INVALID_CONFIG)])
    assert [record.getMessage() for record in caplog.records] == [
        "User:ANONYMOUS from 10.0.0.1 altered the configs of broker 1: listener.name.in.ssl.keystore.password=[hidden], "
        "listener.name.in.unknown=[hidden], log.cleaner.threads=2"
    ]
