"""Commands over SASL_SSL with each mechanism: delegation tokens and OAUTHBEARER too."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from ottla.testing import Broker, Security
from tests.kit.ottla_command import Ottla
from tests.kit.tokens import Issuer

OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
ISSUER = Issuer()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    keys = tmp_path_factory.mktemp("issuer") / "keys.json"
    keys.write_bytes(ISSUER.jwks())
    mechanisms = ("OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    settings = {
        "sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "sasl.oauthbearer.allowed.urls": keys.as_uri(),
        "delegation.token.secret.key": "planted-key",
    }
    with Broker(settings, security=Security("SASL_SSL", mechanisms)) as broker:
        broker.create_topic("orders")
        yield broker


@pytest.fixture
def ottla(broker: Broker) -> Ottla:
    return Ottla(broker.bootstrap_servers)


def config(folder: Path, name: str, properties: dict[str, str]) -> tuple[str, str]:
    path = folder / name
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    return "--command-config", str(path)


def use(ottla: Ottla, login: tuple[str, str]) -> None:
    """librdkafka, and requests that it does not send."""
    ottla.ok("produce", "orders", *login, stdin="hello\n")
    assert ottla.ok("consume", "orders", "-n", "1", *login) == "hello\n"
    assert json.loads(ottla.ok("cluster", "status", "--json", *login))["brokers"]


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_password(ottla: Ottla, broker: Broker, tmp_path: Path, mechanism: str) -> None:
    use(ottla, config(tmp_path, "admin", broker.client_properties("admin", mechanism)))


@pytest.mark.parametrize("source", ["file", "command"])
def test_an_oauth_token(ottla: Ottla, broker: Broker, tmp_path: Path, source: str) -> None:
    (tmp_path / "token").write_text(ISSUER.token(sub="admin"))
    given = {
        "file": {"sasl.oauthbearer.token.endpoint.url": (tmp_path / "token").as_uri()},
        "command": {"sasl.oauthbearer.token.command": f"cat {tmp_path / 'token'}"},
    }[source]
    tls = {name: value for name, value in broker.client_properties("admin").items() if not name.startswith("sasl.")}
    login = {**tls, "sasl.mechanism": "OAUTHBEARER", "sasl.jaas.config": f"{OAUTH};", **given}
    use(ottla, config(tmp_path, "oauth", login))
    (tmp_path / "token").write_text(Issuer("ES256").token(sub="admin"))
    if source == "file":
        refused = ottla.fails("topic", "list", *config(tmp_path, "oauth", login))
        assert "the broker refuses the token: invalid_token" in refused


def test_a_delegation_token(ottla: Ottla, broker: Broker, tmp_path: Path) -> None:
    admin = config(tmp_path, "admin", broker.client_properties("admin"))
    token = json.loads(ottla.ok("token", "create", "--renewer", "alice", "--max-lifetime", "2h", "--json", *admin))
    assert token["owner"] == "User:admin"
    (listed,) = json.loads(ottla.ok("token", "list", "--json", *admin))
    assert (listed["token_id"], listed["renewers"]) == (token["token_id"], ["User:alice"])
    ottla.ok("token", "renew", "-", "--for", "1h", *admin, stdin=f"{token['hmac']}\n")
    jaas = f'{SCRAM} username="{token["token_id"]}" password="{token["hmac"]}" tokenauth="true";'
    by_token = {**broker.client_properties("admin"), "sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas}
    login = config(tmp_path, "token", by_token)
    # Its owner is a super user. librdkafka cannot log in with a token, and a token cannot make tokens.
    assert json.loads(ottla.ok("cluster", "status", "--json", *login))["brokers"]
    assert "delegation token" in ottla.fails("topic", "list", *login, code=2)
    assert "DELEGATION_TOKEN_REQUEST_NOT_ALLOWED" in ottla.fails("token", "create", *login)
    ottla.ok("token", "expire", "-", *admin, stdin=f"{token['hmac']}\n")
    assert json.loads(ottla.ok("token", "list", "--json", *admin)) == []
    assert "login refused" in ottla.fails("cluster", "status", *login)
    assert "planted-key" not in broker.log
    assert token["hmac"] not in broker.log
