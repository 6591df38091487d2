"""How a broker logs in at others, and the settings with which it cannot."""

from __future__ import annotations

import pytest

from ottla.broker.network.inter_broker_security import inter_broker_security
from ottla.broker.startup_error import StartupError
from ottla.cluster.settings import BrokerSettings

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"


def settings(**more: str) -> BrokerSettings:
    base = {
        "listeners": "PLAINTEXT://127.0.0.1:1,BROKERS://127.0.0.1:2",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,BROKERS:SASL_PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "listener.name.brokers.plain.sasl.jaas.config": f'{PLAIN} username="broker" password="secret" user_broker="secret";',
    }
    return BrokerSettings.parse(base | more)


def test_user_and_password_of_the_mechanism_on_the_inter_broker_listener() -> None:
    found = inter_broker_security(settings())
    assert (found.protocol, found.mechanism, found.username, found.password) == ("SASL_PLAINTEXT", "PLAIN", "broker", "secret")


def test_a_listener_without_sasl_needs_no_login() -> None:
    found = inter_broker_security(BrokerSettings.parse({"listeners": "PLAINTEXT://127.0.0.1:1"}))
    assert not found.authenticates


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (
            {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"},
            "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512 is not enabled",
        ),
        (
            {"listener.name.brokers.plain.sasl.jaas.config": f'{PLAIN} user_broker="hush";'},
            "listener.name.brokers.plain.sasl.jaas.config",
        ),
    ],
)
def test_what_cannot_work_is_refused_by_name(more: dict[str, str], said: str) -> None:
    with pytest.raises(StartupError) as refused:
        inter_broker_security(settings(**more))
    assert said in str(refused.value)
    assert "hush" not in str(refused.value)
