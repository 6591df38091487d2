"""Clients that others wrote log in on SASL listeners (SA02-SA06, SC01): librdkafka, kcat, Java of 3.9 and 4.3."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer

from tests.compat.sasl.sasl_brokers import SESSION_MS, SaslBroker, java_client, sasl_broker
from tests.kit.peers import KAFKA_3, KAFKA_4, program, run_tool
from tests.kit.wait import until

RIGHT = [("PLAIN", "ada", "planted-p"), ("SCRAM-SHA-256", "carol", "planted-s"), ("SCRAM-SHA-512", "a,b=c", "planted-e")]
WRONG = [("PLAIN", "ada", "planted-b"), ("SCRAM-SHA-256", "carol", "planted-d"), ("SCRAM-SHA-512", "eve", "planted-e")]


@pytest.fixture(scope="module")
def broker() -> Iterator[SaslBroker]:
    with sasl_broker() as one:
        yield one
        assert "planted" not in one.log()


@pytest.mark.parametrize(("mechanism", "user", "password"), RIGHT)
def test_librdkafka_produces_and_consumes(broker: SaslBroker, mechanism: str, user: str, password: str) -> None:
    topic = f"rd-{mechanism}"
    client: dict[str, Any] = broker.client(user, password, mechanism)
    producer, failed = Producer(client), []
    for number in range(100):
        producer.produce(topic, str(number), on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not failed
    consumer = Consumer(client | {"group.id": "g", "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes | None] = []
    try:
        until(
            lambda: len(values) >= 100,
            meanwhile=lambda: values.extend(m.value() for m in consumer.consume(100, 0.2) if not m.error()),
        )
    finally:
        consumer.close()


@pytest.mark.parametrize(("mechanism", "user", "password"), WRONG)
def test_sa04_librdkafka_hears_that_its_credentials_are_wrong(
    broker: SaslBroker, mechanism: str, user: str, password: str
) -> None:
    errors: list[KafkaError] = []
    producer = Producer(broker.client(user, password, mechanism) | {"error_cb": errors.append, "log_level": 0})
    until(lambda: (producer.poll(0.05), errors)[1], "an error")
    assert errors[0].code() == KafkaError._AUTHENTICATION
    assert "planted" not in errors[0].str()


def test_kcat_lists(broker: SaslBroker) -> None:
    options = broker.client("carol", "planted-s", "SCRAM-SHA-256")
    words = [word for name, value in options.items() if name != "bootstrap.servers" for word in ("-X", f"{name}={value}")]
    kcat = program("kcat", "Debian: `apt-get install kcat`")
    done = subprocess.run([kcat, "-L", "-b", broker.sasl, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"broker 1 at {broker.sasl}" in done.stdout


@pytest.mark.java
@pytest.mark.parametrize("version", [KAFKA_3, KAFKA_4])
@pytest.mark.parametrize(("mechanism", "user", "password"), RIGHT)
def test_java_produces_and_consumes(
    broker: SaslBroker, tmp_path: Path, version: str, mechanism: str, user: str, password: str
) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(java_client(user, password, mechanism))
    topic = f"java-{version}-{mechanism}"
    at = ("--bootstrap-server", broker.sasl, "--topic", topic)
    run_tool(version, "ConsoleProducer", *at, _config(version, "producer"), str(properties), input="a\nb\n", check=True)
    read = run_tool(
        version,
        "ConsoleConsumer",
        *at,
        "--from-beginning",
        "--max-messages",
        "2",
        _config(version, "consumer"),
        str(properties),
        check=True,
    )
    assert read.stdout.split() == ["a", "b"]


def _config(version: str, which: str) -> str:
    return f"--{which}.config" if version == KAFKA_3 else "--command-config"


@pytest.mark.java
def test_sa04_java_hears_that_its_credentials_are_wrong(broker: SaslBroker, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(java_client("carol", "planted-d", "SCRAM-SHA-512"))
    done = run_tool(KAFKA_4, "TopicCommand", "--bootstrap-server", broker.sasl, "--list", "--command-config", str(properties))
    assert "SaslAuthenticationException" in done.stdout + done.stderr


# Sessions with a lifetime: `expired` is what the broker logs if a client did not authenticate again in time.


def expired(broker: SaslBroker) -> int:
    return broker.log().count("has expired (connections.max.reauth.ms)")


@pytest.mark.parametrize(("mechanism", "user", "password"), RIGHT[:2])
def test_sa06_librdkafka_authenticates_again(broker: SaslBroker, mechanism: str, user: str, password: str) -> None:
    before = expired(broker)
    outcomes: list[KafkaError | None] = []
    producer = Producer(broker.client(user, password, mechanism, short=True))
    deadline_s = time.monotonic() + 2.5 * SESSION_MS / 1000
    while time.monotonic() < deadline_s:
        producer.produce("again", b"x", on_delivery=lambda error, _: outcomes.append(error))
        producer.poll(0.05)
    assert producer.flush(30) == 0
    assert outcomes
    assert not any(outcomes)
    assert expired(broker) == before


@pytest.mark.java
@pytest.mark.parametrize("version", [KAFKA_3, KAFKA_4])
def test_sa06_java_authenticates_again(broker: SaslBroker, tmp_path: Path, version: str) -> None:
    before = expired(broker)
    properties = tmp_path / "client.properties"
    properties.write_text(
        java_client("carol", "planted-s", "SCRAM-SHA-256", **{"bootstrap.servers": broker.short, "acks": "all"})
    )
    # At 100 a second it takes more than two sessions.
    words = ["--topic", "again", "--num-records", "800", "--throughput", "100", "--record-size", "10"]
    config = "--producer.config" if version == KAFKA_3 else "--command-config"
    done = run_tool(version, "ProducerPerformance", *words, config, str(properties), check=True)
    assert "800 records sent" in done.stdout
    assert "Exception" not in done.stdout + done.stderr
    assert expired(broker) == before


@pytest.mark.java
@pytest.mark.parametrize("version", [KAFKA_3, KAFKA_4])
def test_sc05_kafka_configs_sets_describes_and_deletes_credentials(broker: SaslBroker, version: str) -> None:
    user = f"frank-{version}"
    at = ("--bootstrap-server", broker.plaintext, "--entity-type", "users")

    def configs(*words: str) -> str:
        return run_tool(version, "ConfigCommand", *at, *words, check=True).stdout

    named = ("--entity-name", user)
    assert "Completed" in configs(*named, "--alter", "--add-config", "SCRAM-SHA-256=[iterations=8192,password=planted-f]")
    assert "Completed" in configs(*named, "--alter", "--add-config", "producer_byte_rate=1000000")
    described = configs("--describe")
    assert f"SCRAM credential configs for user-principal '{user}' are SCRAM-SHA-256=iterations=8192" in described
    assert "producer_byte_rate=1000000" in described
    Producer(broker.client(user, "planted-f", "SCRAM-SHA-256")).list_topics(timeout=30)
    assert "Completed" in configs(*named, "--alter", "--delete-config", "SCRAM-SHA-256")
    assert "producer_byte_rate=1000000" in configs("--describe")
    with pytest.raises(KafkaException):
        Producer(broker.client(user, "planted-f", "SCRAM-SHA-256") | {"log_level": "0"}).list_topics(timeout=2)


@pytest.mark.java
@pytest.mark.parametrize("version", [KAFKA_3, KAFKA_4])
def test_dt01_dt04_kafka_delegation_tokens_and_a_login_with_a_token(tmp_path: Path, version: str) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(java_client("carol", "planted-s", "SCRAM-SHA-256"))
    with sasl_broker(**{"delegation.token.secret.key": "planted-key"}) as broker:

        def tokens(*words: str) -> str:
            at = ("--bootstrap-server", broker.sasl, "--command-config", str(properties))
            return run_tool(version, "DelegationTokenCommand", *at, *words, check=True).stdout

        created = tokens("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:ada")
        fields = created.splitlines()[-1].split()
        token_id, hmac = fields[0], fields[1]
        assert "User:carol" in created
        assert token_id in tokens("--describe", "--owner-principal", "User:carol")
        assert "Completed renew" in tokens("--renew", "--renew-time-period", "1000000", "--hmac", hmac)
        by_token = tmp_path / "token.properties"
        by_token.write_text(java_client(token_id, hmac, "SCRAM-SHA-512", tokenauth="true"))
        produced = ("--bootstrap-server", broker.sasl, "--topic", "t", _config(version, "producer"), str(by_token))
        run_tool(version, "ConsoleProducer", *produced, input="a\n", check=True)
        assert "Completed expire" in tokens("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
        assert token_id not in tokens("--describe")
        assert "planted" not in broker.log()
        assert hmac not in broker.log()


@pytest.mark.java
@pytest.mark.parametrize("version", [KAFKA_3, KAFKA_4])
def test_kafka_acls_of_an_admin_that_logs_in(tmp_path: Path, version: str) -> None:
    admin, carol = tmp_path / "admin.properties", tmp_path / "carol.properties"
    admin.write_text(java_client("admin", "planted-a"))
    carol.write_text(java_client("carol", "planted-s", "SCRAM-SHA-256"))
    authorizer = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
    }
    with sasl_broker(**authorizer) as broker:
        at = ("--bootstrap-server", broker.sasl, "--command-config")

        def acls(*words: str) -> str:
            return run_tool(version, "AclCommand", *at, str(admin), *words, check=True).stdout

        mine = ("--allow-principal", "User:carol", "--producer", "--topic", "orders-", "--resource-pattern-type", "prefixed")
        assert "principal=User:carol, host=*, operation=WRITE, permissionType=ALLOW" in acls("--add", *mine)
        assert "name=orders-, patternType=PREFIXED" in acls("--list", "--principal", "User:carol")
        refused = run_tool(version, "AclCommand", *at, str(carol), "--list")
        assert "ClusterAuthorizationException" in refused.stdout + refused.stderr
        produced = (*("--bootstrap-server", broker.sasl, "--topic", "orders-1"), _config(version, "producer"), str(carol))
        run_tool(version, "ConsoleProducer", *produced, input="a\n", check=True)
        acls("--remove", "--force", *mine)
        assert "User:carol" not in acls("--list")
        denied = run_tool(version, "ConsoleProducer", *produced, input="b\n")
        assert "TopicAuthorizationException" in denied.stdout + denied.stderr
