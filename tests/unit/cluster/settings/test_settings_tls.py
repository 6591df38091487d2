from __future__ import annotations

import pytest

from ottla.cluster.settings import BrokerSettings, ConfigSource, SettingsError, describe_broker
from ottla.cluster.settings.broker import dynamic_problems
from ottla.tls.config import KeyStore, TrustStore

SSL = {
    "listeners": "SSL://127.0.0.1:9093",
    "ssl.keystore.location": "/etc/kafka/server.jks",
    "ssl.keystore.password": "planted-secret",
}

SECURED_KAFKA = {
    "broker.id": "1",
    "zookeeper.connect": "zk:2181",
    "listeners": "INTERNAL://:9092,CLIENTS://:9093,OPEN://:9094",
    "advertised.listeners": "INTERNAL://b1:9092,CLIENTS://b1:9093,OPEN://b1:9094",
    "listener.security.protocol.map": "INTERNAL:SASL_SSL,CLIENTS:SSL,OPEN:SASL_PLAINTEXT",
    "inter.broker.listener.name": "INTERNAL",
    "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    "listener.name.internal.scram-sha-512.sasl.jaas.config": (
        'org.apache.kafka.common.security.scram.ScramLoginModule required username="admin" password="planted-secret";'
    ),
    "listener.name.open.sasl.enabled.mechanisms": "PLAIN",
    "listener.name.open.plain.sasl.jaas.config": (
        'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="planted-secret";'
    ),
    "listener.name.open.plain.connections.max.reauth.ms": "60000",
    "ssl.keystore.location": "/var/private/ssl/kafka.server.keystore.jks",
    "ssl.keystore.password": "planted-secret",
    "ssl.key.password": "planted-secret",
    "ssl.truststore.location": "/var/private/ssl/kafka.server.truststore.jks",
    "ssl.truststore.password": "planted-secret",
    "ssl.truststore.type": "jks",
    "ssl.client.auth": "required",
    "ssl.enabled.protocols": "TLSv1.2,TLSv1.1,TLSv1",
    "ssl.protocol": "TLS",
    "ssl.keymanager.algorithm": "SunX509",
    "ssl.trustmanager.algorithm": "PKIX",
    "ssl.secure.random.implementation": "SHA1PRNG",
    "ssl.endpoint.identification.algorithm": "",
    "ssl.principal.mapping.rules": "RULE:^CN=(.*?),.*$/$1/L,DEFAULT",
    "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
}
"""As operators of Kafka 3.9 write it."""


def problems_of(properties: dict[str, str]) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        BrokerSettings.parse(properties)
    return refused.value.problems


def test_the_settings_of_a_secured_kafka_are_taken_as_they_are() -> None:
    settings = BrokerSettings.parse(SECURED_KAFKA)
    tls = settings.tls_of("CLIENTS")
    assert tls.protocols == ("TLSv1.2",)
    assert not tls.check_host
    assert tls.trust_store == TrustStore("JKS", "/var/private/ssl/kafka.server.truststore.jks", "planted-secret")
    assert any("does not offer TLSv1.1, TLSv1" in warning for warning in settings.warnings)
    assert settings.listeners().inter_broker == "INTERNAL"


def test_tl01_a_listeners_own_setting_comes_first() -> None:
    own = {"listener.name.ssl.ssl.keystore.location": "/own.p12", "listener.name.ssl.ssl.keystore.type": "PKCS12"}
    tls = BrokerSettings.parse(SSL | own).tls_of("SSL")
    assert tls.key_store == KeyStore("PKCS12", "/own.p12", "planted-secret")
    assert BrokerSettings.parse(SSL).tls_of("SSL").key_store == KeyStore("JKS", "/etc/kafka/server.jks", "planted-secret")


def test_tl01_on_sasl_ssl_only_the_listeners_own_client_auth_counts() -> None:
    settings = BrokerSettings.parse(SECURED_KAFKA)
    assert settings.tls_of("CLIENTS").client_auth == "required"
    assert settings.tls_of("INTERNAL").client_auth == "none"
    own = SECURED_KAFKA | {"listener.name.internal.ssl.client.auth": "requested"}
    assert BrokerSettings.parse(own).tls_of("INTERNAL").client_auth == "requested"


def test_settings_of_a_mechanism_come_before_those_of_its_listener() -> None:
    settings = BrokerSettings.parse(SECURED_KAFKA)
    opened = settings.of_listener("OPEN")
    assert opened.security_protocol == "SASL_PLAINTEXT"
    assert opened.list("sasl.enabled.mechanisms") == ("PLAIN",)
    assert settings.of_listener("INTERNAL").list("sasl.enabled.mechanisms") == ("SCRAM-SHA-512", "PLAIN")
    assert opened.int("connections.max.reauth.ms") == 0
    assert opened.mechanism("PLAIN").int("connections.max.reauth.ms") == 60000
    assert opened.mechanism("PLAIN").list("sasl.enabled.mechanisms") == ("PLAIN",)
    assert "user_alice" in opened.mechanism("PLAIN").str("sasl.jaas.config")
    assert opened.mechanism("SCRAM-SHA-512").own("sasl.jaas.config") is None


@pytest.mark.parametrize(
    ("changes", "word"),
    [
        ({"ssl.engine.factory.class": "com.example.Engines"}, "ssl.engine.factory.class=com.example.Engines is not allowed"),
        ({"listener.name.ssl.ssl.engine.factory.class": "com.example.Engines"}, "listener.name.ssl.ssl.engine.factory.class"),
        ({"ssl.provider": "BC"}, "ssl.provider=BC is not allowed"),
        ({"security.providers": "com.example.Provider"}, "security.providers"),
        ({"ssl.keymanager.algorithm": "ENTRUST"}, "ssl.keymanager.algorithm=ENTRUST is not allowed"),
        ({"ssl.trustmanager.algorithm": "None"}, "ssl.trustmanager.algorithm"),
        ({"principal.builder.class": "com.example.Builder"}, "principal.builder.class"),
        ({"ssl.keystore.type": "BCFKS"}, "allowed: JKS, PKCS12, PEM"),
        ({"ssl.enabled.protocols": "SSLv3"}, "ssl.enabled.protocols=SSLv3 is not allowed"),
        ({"ssl.enabled.protocols": "TLSv1.1"}, "must name TLSv1.2 or TLSv1.3"),
        ({"ssl.client.auth": "always"}, "required, requested, none"),
        ({"ssl.keystore.password": ""}, "ssl.keystore.password is missing"),
        ({"ssl.keystore.type": "PEM"}, "does not apply to PEM; set ssl.key.password"),
        ({"ssl.keystore.key": "planted-secret"}, "set ssl.keystore.type=PEM"),
        ({"ssl.keystore.key": "planted-secret", "ssl.keystore.type": "PEM"}, "are both set"),
        ({"ssl.keystore.key": "k", "ssl.keystore.type": "PEM", "ssl.keystore.location": ""}, "must be set together"),
        ({"ssl.truststore.certificates": "c"}, "set ssl.truststore.type=PEM"),
        ({"ssl.truststore.certificates": "c", "ssl.truststore.type": "PEM", "ssl.truststore.location": "/t"}, "are both set"),
        (
            {"ssl.truststore.location": "/t", "ssl.truststore.type": "PEM", "ssl.truststore.password": "p"},
            "does not apply to PEM",
        ),
        ({"ssl.principal.mapping.rules": "RULE:^CN=(\\p{L}+)$/$1/"}, "the pattern ^CN=(\\p{L}+)$ is not supported"),
        ({"ssl.principal.mapping.rules": "DEFAULTS"}, "DEFAULTS is not a rule"),
        ({"security.inter.broker.protocol": "SASL_SSL"}, "no listener has this protocol"),
    ],
)
def test_what_is_not_supported_is_refused_by_name(changes: dict[str, str], word: str) -> None:
    (problem,) = problems_of(SSL | changes)
    assert word in problem
    assert "planted-secret" not in problem


def test_secrets_are_neither_described_nor_printed() -> None:
    name = "listener.name.open.plain.sasl.jaas.config"
    settings = BrokerSettings.parse(SECURED_KAFKA)
    assert "planted-secret" not in repr(settings.tls_of("CLIENTS"))
    assert "planted-secret" not in "".join(map(repr, describe_broker(settings, None)))
    (shown,) = describe_broker(settings, [name])
    assert (shown.value, shown.sensitive) == (None, True)


def test_a_setting_of_a_listener_is_described_with_that_of_the_broker() -> None:
    name = "listener.name.ssl.ssl.keystore.location"
    (shown,) = describe_broker(BrokerSettings.parse(SSL | {name: "/own.p12"}), [name])
    # Read-only as in Kafka, although it can be altered.
    assert (shown.value, shown.read_only) == ("/own.p12", True)
    assert [(synonym.name, synonym.value) for synonym in shown.synonyms] == [
        (name, "/own.p12"),
        ("ssl.keystore.location", "/etc/kafka/server.jks"),
    ]
    of_type = "listener.name.ssl.ssl.keystore.type"
    (shown,) = describe_broker(BrokerSettings.parse(SSL | {of_type: "PKCS12"}), [of_type])
    assert [(synonym.name, synonym.source) for synonym in shown.synonyms] == [
        (of_type, ConfigSource.STATIC_BROKER_CONFIG),
        ("ssl.keystore.type", ConfigSource.DEFAULT_CONFIG),
    ]


def test_stores_change_while_the_broker_runs_only_for_a_listener() -> None:
    name = "listener.name.ssl.ssl.keystore.location"
    assert dynamic_problems({name: "/new.jks"}, per_broker=True) == []
    (problem,) = dynamic_problems({"ssl.keystore.location": "/new.jks"}, per_broker=True)
    assert "only for a listener: listener.name.<listener>.ssl.keystore.location" in problem
    (problem,) = dynamic_problems({"listener.name.ssl.ssl.keystore.password": "planted-secret"}, per_broker=True)
    assert "set it in server.properties" in problem
    assert "planted-secret" not in problem
    (problem,) = dynamic_problems({"listener.name.ssl.ssl.client.auth": "none"}, per_broker=True)
    assert "cannot be changed while the broker runs" in problem
    assert BrokerSettings.parse(SSL).with_dynamic({name: "/new.jks"}).tls_of("SSL").key_store == KeyStore(
        "JKS", "/new.jks", "planted-secret"
    )
