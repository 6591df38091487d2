"""The security options of clients, by Java's and librdkafka's names."""

from __future__ import annotations

import pickle

import pytest

from ottla.client.security import InvalidOption, client_security

SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
URL = "sasl.oauthbearer.token.endpoint.url"
SASL = {"security.protocol": "SASL_SSL"}


def test_a_delegation_token_is_a_scram_login() -> None:
    jaas = f'{SCRAM} username="id" password="hmac" tokenauth="true";'
    found = client_security(SASL | {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas})
    assert (found.username, found.password, found.by_token) == ("id", "hmac", True)
    with pytest.raises(InvalidOption, match="logs in with SCRAM"):
        client_security(SASL | {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas})


def test_a_token_of_a_provider() -> None:
    given = SASL | {
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.token.endpoint.url": "https://issuer/token",
        "sasl.jaas.config": f'{OAUTH} clientId="me" clientSecret="hush" scope="kafka" extension_team="blue"'
        ' ssl.truststore.location="/ca.pem";',
    }
    found = client_security(given)
    assert found.token is not None
    assert (found.token.client_id, found.token.client_secret, found.token.scope) == ("me", "hush", "kafka")
    assert found.token.extensions == (("team", "blue"),)
    assert found.token.tls.trust_file == "/ca.pem"
    assert "hush" not in repr(found)
    assert pickle.loads(pickle.dumps(found)) == found
    kafka_4 = dict(given) | {
        "sasl.jaas.config": f"{OAUTH};",
        "sasl.oauthbearer.client.credentials.client.id": "me",
        "sasl.oauthbearer.client.credentials.client.secret": "hush",
    }
    assert client_security(kafka_4).token is not None
    with pytest.raises(InvalidOption, match="clientSecret"):
        client_security(given | {"sasl.jaas.config": f'{OAUTH} clientId="me";'})


def test_librdkafkas_names() -> None:
    found = client_security(
        {
            "security.protocol": "sasl_ssl",
            "sasl.mechanisms": "SCRAM-SHA-512",
            "sasl.username": "alice",
            "sasl.password": "x",
            "ssl.ca.location": "/ca.pem",
            "ssl.certificate.location": "/me.pem",
            "ssl.key.location": "/me.key",
        }
    )
    assert (found.protocol, found.mechanism, found.username) == ("SASL_SSL", "SCRAM-SHA-512", "alice")
    assert (found.tls.trust_file, found.tls.chain_file, found.tls.key_file) == ("/ca.pem", "/me.pem", "/me.key")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"sasl.mechanism": "CRAM-MD5"}, "sasl.mechanism"),
        ({"sasl.mechanism": "SCRAM-SHA-256"}, "sasl.jaas.config"),
        ({"sasl.mechanism": "PLAIN", "sasl.jaas.config": 'x required username="a'}, "sasl.jaas.config"),
        ({"sasl.mechanism": "OAUTHBEARER"}, URL),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.oauthbearer.token.endpoint.url": "ftp://x"},
            "sasl.oauthbearer.token.endpoint.url",
        ),
        (
            {"sasl.mechanism": "OAUTHBEARER", "sasl.login.callback.handler.class": "com.example.Mine"},
            "sasl.login.callback.handler.class",
        ),
        ({"sasl.username": "a", "ssl.truststore.type": "BCFKS"}, "ssl.truststore.type"),
        ({"sasl.username": "a", "ssl.enabled.protocols": "TLSv1"}, "ssl.enabled.protocols"),
    ],
)
def test_an_impossible_option_is_named(given: dict[str, str], name: str) -> None:
    with pytest.raises(InvalidOption) as refused:
        client_security(SASL | given, "kafka.")
    assert refused.value.name == f"kafka.{name}"
