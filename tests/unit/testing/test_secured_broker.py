"""`ottla.testing.Broker(security=…)`: each protocol and mechanism, users, ACLs."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient

from ottla.client.blocking import Client
from ottla.client.options import client_options
from ottla.testing import Broker, Security


def topics(broker: Broker, user: str, mechanism: str | None = None) -> set[str]:
    return set(AdminClient({**broker.client_config(user, mechanism), "log_level": 0}).list_topics(timeout=30).topics)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_a_secured_broker_knows_its_users(protocol: str) -> None:
    with Broker(security=protocol) as broker:
        broker.create_topic("orders")
        assert broker.security is not None
        for mechanism in broker.security.mechanisms if broker.security.authenticates else (None,):
            assert topics(broker, "admin", mechanism) == {"orders"}
            assert topics(broker, "alice", mechanism) == set(), "she has no ACL"
            given = {f"kafka.{name}": value for name, value in broker.client_properties("admin", mechanism).items()}
            with Client(client_options(given)) as client:
                assert set(client.topics()) == {"orders"}
        broker.restart()
        assert topics(broker, "admin") == {"orders"}


def test_without_acls_every_user_may_do_everything() -> None:
    with Broker(security=Security("SASL_SSL", users={"bob": 'a "quoted" word'}, super_users=(), acls=False)) as broker:
        producer = Producer({**broker.client_config("bob"), "log_level": 0})
        delivered: list[KafkaError | None] = []
        producer.produce("orders", b"x", on_delivery=lambda error, message: delivered.append(error))
        assert producer.flush(30) == 0
        assert delivered == [None]


def test_a_wrong_password_is_refused() -> None:
    with Broker(security="SASL_PLAINTEXT") as broker:
        config = {**broker.client_config("alice"), "sasl.password": "wrong", "log_level": 0}
        with pytest.raises(KafkaException):
            AdminClient(config).list_topics(timeout=2)


def test_data_that_is_kept_keeps_its_users(tmp_path: Path) -> None:
    for _ in range(2):
        with Broker(security="SASL_SSL", data_dir=tmp_path / "data") as broker:
            assert topics(broker, "admin") == set()


def test_an_unknown_protocol_is_named() -> None:
    with pytest.raises(ValueError, match="there are PLAINTEXT"):
        Broker(security="TLS")
