"""No setting of Kafka 3.9 that secures a broker is ignored: Ottla uses it, or refuses it by name at the start.

`tests/golden/settings_3.9.2.txt` has Kafka's settings, printed by `tests/golden/Settings.java` with the jars of 3.9.2.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla.cluster.properties import parse_properties
from ottla.cluster.settings import BROKER_SETTINGS, BrokerSettings, SettingsError
from ottla.cluster.settings.broker import fixed_security_configs
from ottla.cluster.settings.setting import CLASS
from ottla.runtime.config_providers import resolved
from ottla.tls.config import TrustStore

KAFKA: dict[str, str] = dict(
    line.split() for line in (Path(__file__).parents[3] / "golden" / "settings_3.9.2.txt").read_text().splitlines()
)
SECURES = (
    *("ssl.", "sasl.", "security.", "zookeeper.ssl.", "zookeeper.set.", "zookeeper.clientCnxnSocket"),
    *("delegation.", "principal.", "password.encoder.", "authorizer.", "super.", "allow.", "client.quota.", "quota."),
    *("connection.failed.", "connections.max.reauth.", "max.connection", "config.providers"),
    *("listener", "inter.broker.listener", "control.plane.", "early.start.", "create.topic.policy.", "alter.config.policy."),
)
HARMLESS = {
    "alter.config.policy.kraft.compatibility.enable": "of the policy, which is refused",
    "control.plane.listener.name": "its listener opens, as secure as its protocol; Ottla's brokers use the inter-broker listener",
    "early.start.listeners": "of KRaft",
    "sasl.mechanism.controller.protocol": "of KRaft",
    "sasl.kerberos.kinit.cmd": "Kafka does not use it either",
    "sasl.kerberos.min.time.before.relogin": "when Java renews a ticket; libkrb5 does it when it is needed",
    "sasl.kerberos.ticket.renew.jitter": "the same",
    "sasl.kerberos.ticket.renew.window.factor": "the same",
    "sasl.login.connect.timeout.ms": "a time limit; sasl.login.read.timeout.ms is for the whole request",
    "sasl.login.refresh.buffer.seconds": "when Java asks for a new token; Ottla asks at each login",
    "sasl.login.refresh.min.period.seconds": "the same",
    "sasl.login.refresh.window.factor": "the same",
    "sasl.login.refresh.window.jitter": "the same",
    "sasl.login.retry.backoff.max.ms": "the pause of a repeated request for a token",
    "sasl.login.retry.backoff.ms": "the same",
}
"""Without effect, told by a warning, and why nothing becomes less secure."""


def problems_of(properties: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        BrokerSettings.parse(properties)
    return refused.value.problems


def securing() -> list[str]:
    return [name for name in KAFKA if name.startswith(SECURES)]


def test_every_setting_of_kafka_is_known() -> None:
    assert len(KAFKA) > 300
    assert [name for name in KAFKA if name not in BROKER_SETTINGS] == []


def test_a_setting_that_secures_a_broker_is_used_or_harmless() -> None:
    assert len(securing()) > 100
    unused = {name for name in securing() if not BROKER_SETTINGS[name].used}
    assert unused == set(HARMLESS) & set(KAFKA)


@pytest.mark.parametrize("name", [name for name in securing() if BROKER_SETTINGS[name].type is CLASS or KAFKA[name] == "CLASS"])
def test_a_class_of_somebody_else_is_refused(name: str) -> None:
    assert any(f"{name}=com.example.Mine is not" in problem for problem in problems_of({name: "com.example.Mine"}))
    if name.startswith(("sasl.", "ssl.", "principal.")):
        own = f"listener.name.plaintext.{name}"
        assert any(own in problem for problem in problems_of({own: "com.example.Mine"}))


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("security.providers", "com.example.Provider"),
        ("ssl.provider", "BCFIPS"),
        ("sasl.enabled.mechanisms", "CUSTOM"),
        ("ssl.keystore.type", "BCFKS"),
        ("zookeeper.ssl.truststore.type", "BCFKS"),
        ("zookeeper.clientCnxnSocket", "com.example.Socket"),
        ("authorizer.zookeeper.url", "other:2181"),
        ("sasl.enabled.mechanism", "PLAIN"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(name: str, value: str) -> None:
    given = {name: value, "listeners": "SASL_SSL://:9092", "security.inter.broker.protocol": "SASL_SSL"}
    assert any(name in problem for problem in problems_of(given))


def test_the_receive_size_of_a_listener_comes_first() -> None:
    given = {
        "listeners": "SASL_PLAINTEXT://:9092",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.server.max.receive.size": "9000",
        "listener.name.sasl_plaintext.sasl.server.max.receive.size": "8000",
    }
    assert BrokerSettings.parse(given).sasl_of("SASL_PLAINTEXT").receive_bytes_max == 8000


def test_dynamic_configs_that_say_who_may_connect_are_not_ignored() -> None:
    stored = {
        "listeners": "SSL://:9093",
        "listener.name.ssl.ssl.client.auth": "required",
        "listener.name.in.scram-sha-512.sasl.jaas.config": "planted",
        "listener.name.ssl.ssl.keystore.location": "/new.jks",
        "listener.name.in.sasl.login.refresh.window.factor": "0.5",
        "log.retention.ms": "1",
    }
    assert fixed_security_configs(stored) == list(stored)[:3]
    warnings = BrokerSettings.parse({}).with_dynamic(stored).warnings
    assert sum("taken from server.properties only" in warning for warning in warnings) == 3
    assert "planted" not in "".join(warnings)


FILES = Path(__file__).parent / "files"


def parsed(name: str) -> BrokerSettings:
    text = (FILES / f"{name}.properties").read_text()
    return BrokerSettings.parse(resolved(parse_properties(text), {"CERTS_STORE_PASSWORD": "planted-secret"}))


def test_a_file_that_an_operator_generates_is_taken_as_it_is() -> None:
    settings = parsed("strimzi")
    assert settings.listeners().inter_broker == "REPLICATION-9091"
    assert settings.tls_of("TLS-9093").client_auth == "required"
    assert settings.tls_of("TLS-9093").trust_store == TrustStore("PKCS12", "/tmp/kafka/clients.truststore.p12", "planted-secret")
    assert [each.name for each in settings.sasl_of("PLAIN-9092").mechanisms] == ["SCRAM-SHA-512"]
    authorizer = settings.new_authorizer()
    assert authorizer is not None
    assert "User:CN=my-cluster-kafka,O=io.strimzi" in authorizer.super_users
    assert not any("planted" in warning for warning in settings.warnings)


def test_a_file_of_a_vendors_tutorial_is_taken_as_it_is() -> None:
    settings = parsed("confluent")
    options = settings.sasl_of("BROKER").mechanisms[0].options
    assert (options["username"], options["password"]) == ("admin", "admin-secret")
    assert settings.tls_of("SSL").client_auth == "requested"
    assert settings.tls_of("SASL_SSL").client_auth == "none"
    assert settings.bool("zookeeper.set.acl")
    assert any("confluent.support.metrics.enable has no effect" in warning for warning in settings.warnings)


def test_a_file_with_kerberos_is_taken_as_it_is() -> None:
    (mechanism,) = parsed("kerberos").sasl_of("SASL_SSL").mechanisms
    assert mechanism.kerberos is not None
    assert mechanism.kerberos.principal == "kafka/broker3.example.com@EXAMPLE.COM"
    assert len(mechanism.kerberos.rules) == 2
    assert mechanism.reauth_ms_max == 3_600_000


def test_a_password_that_kafka_has_stored_is_read() -> None:
    stored = (Path(__file__).parents[3] / "golden" / "passwords_3.9.2.txt").read_text().splitlines()[0]
    name = "listener.name.ssl.ssl.keystore.password"
    given = {
        "listeners": "SSL://:9093",
        "ssl.keystore.location": "/etc/kafka/server.jks",
        "ssl.keystore.password": "of-the-file",
        "password.encoder.secret": "the secret",
    }
    key_store = BrokerSettings.parse(given).with_dynamic({name: stored}).tls_of("SSL").key_store
    assert key_store is not None
    assert key_store.password == "store-päss"
    # With another secret it is ignored, as in Kafka, and said so.
    other = BrokerSettings.parse(given | {"password.encoder.secret": "another"}).with_dynamic({name: stored})
    assert other.tls_of("SSL").key_store == BrokerSettings.parse(given).tls_of("SSL").key_store
    assert any(name in warning for warning in other.warnings)
    assert not any(stored in warning for warning in other.warnings)
