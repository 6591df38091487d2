"""librdkafka and Java's client log in with OAUTHBEARER tokens that an issuer signed (OA02, OA03)."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, Producer

from ottla.runtime.free_ports import free_port
from ottla.testing import Broker
from tests.kit.peers import KAFKA_3, java_command, program, tool_class
from tests.kit.tokens import Issuer
from tests.kit.wait import until

ISSUER = Issuer()


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    path = tmp_path_factory.mktemp("oauth") / "keys.json"
    path.write_bytes(ISSUER.jwks())
    settings = {
        "listeners": f"SASL_PLAINTEXT://127.0.0.1:{free_port()}",
        "security.inter.broker.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism.inter.broker.protocol": "OAUTHBEARER",
        "sasl.enabled.mechanisms": "OAUTHBEARER",
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{path}",
        "sasl.oauthbearer.allowed.urls": f"file://{path}",
        "sasl.oauthbearer.expected.audience": "kafka",
    }
    with Broker(settings) as one:
        yield one


def client(broker: Broker, token: str) -> dict[str, Any]:
    return {
        "bootstrap.servers": broker.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": lambda _: (token, time.time() + 3600),
        "log_level": 0,
    }


def test_oa03_librdkafka_logs_in(broker: Broker) -> None:
    producer, outcomes = Producer(client(broker, ISSUER.token(aud="kafka"))), list[KafkaError | None]()
    producer.produce("t", b"x", on_delivery=lambda error, _: outcomes.append(error))
    assert producer.flush(30) == 0
    assert outcomes == [None]


@pytest.mark.parametrize("claims", [{"aud": "other"}, {"aud": "kafka", "exp": 1}])
def test_oa02_librdkafka_hears_that_its_token_is_not_accepted(broker: Broker, claims: dict[str, Any]) -> None:
    errors: list[KafkaError] = []
    producer = Producer(client(broker, ISSUER.token(**claims)) | {"error_cb": errors.append})
    until(lambda: (producer.poll(0.05), errors)[1], "an error")
    assert errors[0].code() == KafkaError._AUTHENTICATION


@pytest.mark.java
def test_oa03_java_logs_in(broker: Broker, tmp_path: Path) -> None:
    program("java", "install a Java 17 runtime")
    (tmp_path / "token").write_text(ISSUER.token(aud="kafka", scope="x"))
    properties = tmp_path / "client.properties"
    properties.write_text(
        "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=OAUTHBEARER\n"
        "sasl.login.callback.handler.class=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginCallbackHandler\n"
        f"sasl.oauthbearer.token.endpoint.url=file://{tmp_path}/token\n"
        "sasl.jaas.config=org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;\n"
    )
    words = ("--bootstrap-server", broker.bootstrap_servers, "--command-config", str(properties), "--list")
    command = java_command(KAFKA_3, tool_class(KAFKA_3, "TopicCommand"), *words)
    command.insert(1, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls=file://{tmp_path}/token")
    command.insert(1, f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.files={tmp_path}/token")
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
