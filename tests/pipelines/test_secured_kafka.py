"""Security as Java's clients name it (`kafka.security.protocol`, …), against Apache Kafka: SASL, SCRAM, TLS both ways (F77)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from ottla.client.blocking import BrokerAway, Client
from ottla.client.options import InvalidOption, client_options
from ottla.errors import ErrorCode, KafkaError
from ottla.pipelines import PipelineError, topics
from tests.kit.peers import KAFKA_4, ApacheKafka, free_ports

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.pipelines.conftest import Shop

pytestmark = [pytest.mark.java, pytest.mark.slow]

PASSWORD = "store-secret"
JAAS = "org.apache.kafka.common.security.{0}.{1}LoginModule required"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
COPY = """
from ottla import pipelines as p

orders = p.source("{source}", p.json("id long"), name="orders")
p.sql(orders, to=p.sink("{out}", key="id"), name="copy", query="SELECT * FROM orders")
"""


def keytool(*words: str) -> None:
    subprocess.run(["keytool", *words, "-storepass", PASSWORD, "-noprompt"], check=True, capture_output=True, timeout=180)


def make_stores(folder: Path) -> None:
    """For broker and client a key of its own in PKCS12, and its certificate in the other's trust store: JKS and PEM."""
    for name in ("broker", "client"):
        store = ("-keystore", str(folder / f"{name}.p12"), "-storetype", "PKCS12", "-alias", name)
        keytool("-genkeypair", "-keyalg", "RSA", "-dname", f"CN={name}", "-ext", "SAN=IP:127.0.0.1", "-validity", "30", *store)
        keytool("-exportcert", "-rfc", *store, "-file", str(folder / f"{name}.pem"))
        trust = ("-keystore", str(folder / f"{name}-trust.jks"), "-storetype", "JKS", "-alias", name)
        keytool("-importcert", "-file", str(folder / f"{name}.pem"), *trust)


class SecuredKafka(ApacheKafka):
    """A listener for SASL_SSL with three mechanisms, and one for SSL that wants the client's certificate."""

    def __init__(self, folder: Path) -> None:
        super().__init__(KAFKA_4)
        self.folder = folder
        self.sasl_port, self.ssl_port = free_ports(2)
        listeners = f"{super().properties()['listeners']},SASL_SSL://127.0.0.1:{self.sasl_port},SSL://127.0.0.1:{self.ssl_port}"
        protocols = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
        self.settings |= {
            "listeners": listeners,
            "advertised.listeners": listeners,
            "listener.security.protocol.map": ",".join(["CONTROLLER:PLAINTEXT", *(f"{each}:{each}" for each in protocols)]),
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{JAAS.format("plain", "Plain")} user_alice="plain-secret";',
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f"{JAAS.format('scram', 'Scram')};",
            "listener.name.sasl_ssl.scram-sha-512.sasl.jaas.config": f"{JAAS.format('scram', 'Scram')};",
            "ssl.keystore.location": str(folder / "broker.p12"),
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.password": PASSWORD,
            "ssl.key.password": PASSWORD,
            "ssl.truststore.location": str(folder / "client-trust.jks"),
            "ssl.truststore.type": "JKS",
            "ssl.truststore.password": PASSWORD,
            "listener.name.ssl.ssl.client.auth": "required",
        }

    def add_user(self) -> None:
        from confluent_kafka.admin import (
            AdminClient,
            ScramCredentialInfo,
            ScramMechanism,
            UserScramCredentialUpsertion,
        )

        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers, "log_level": 0})
        for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            change = UserScramCredentialUpsertion("alice", ScramCredentialInfo(mechanism, 4096), b"scram-secret")
            for done in admin.alter_user_scram_credentials([change]).values():
                done.result(60)

    def sasl(self, mechanism: str, password: str | None = None) -> dict[str, str]:
        kind = ("plain", "Plain") if mechanism == "PLAIN" else ("scram", "Scram")
        secret = password or ("plain-secret" if mechanism == "PLAIN" else "scram-secret")
        return {
            "kafka.bootstrap.servers": f"127.0.0.1:{self.sasl_port}",
            "kafka.security.protocol": "SASL_SSL",
            "kafka.sasl.mechanism": mechanism,
            "kafka.sasl.jaas.config": f'{JAAS.format(*kind)} username="alice" password="{secret}";',
            "kafka.ssl.truststore.location": str(self.folder / "broker-trust.jks"),
            "kafka.ssl.truststore.password": PASSWORD,
        }

    def ssl(self, **more: Any) -> dict[str, str]:
        return {
            "kafka.bootstrap.servers": f"127.0.0.1:{self.ssl_port}",
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": str(self.folder / "broker.pem"),
            **more,
        }


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    folder = tmp_path_factory.mktemp("stores")
    make_stores(folder)
    with SecuredKafka(folder) as broker:
        broker.add_user()
        yield broker


def log_in(options: dict[str, str], timeout_s: float = 30) -> None:
    """And ask something that only one who is in may ask."""
    with Client(client_options(options)) as client:
        client.reach(timeout_s)
        client.topics()


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_login_over_tls(kafka: SecuredKafka, mechanism: str) -> None:
    log_in(kafka.sasl(mechanism))
    with pytest.raises(KafkaError) as refused:
        log_in(kafka.sasl(mechanism, "wrong"))
    assert refused.value.code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_a_client_with_a_key_of_its_own(kafka: SecuredKafka) -> None:
    """PKCS12 as keytool makes it; the same as PEM in the options themselves; and none."""
    store = {"kafka.ssl.keystore.location": str(kafka.folder / "client.p12"), "kafka.ssl.keystore.password": PASSWORD}
    log_in(kafka.ssl(**store))
    from ottla.tls.stores import key_and_chain

    pem, _ = key_and_chain(store["kafka.ssl.keystore.location"], PASSWORD, None)
    key, begin, chain = pem.partition("-----BEGIN CERTIFICATE-----")
    inline = {"kafka.ssl.keystore.key": key, "kafka.ssl.keystore.certificate.chain": begin + chain}
    certificates = {"kafka.ssl.truststore.certificates": (kafka.folder / "broker.pem").read_text()}
    log_in(kafka.ssl(**inline) | certificates)
    with pytest.raises(BrokerAway):
        log_in(kafka.ssl(), 3)


def test_a_broker_that_is_not_trusted_and_a_store_that_cannot_be_read(kafka: SecuredKafka) -> None:
    with pytest.raises(BrokerAway, match="shows a certificate that is not trusted"):
        log_in(kafka.sasl("PLAIN") | {"kafka.ssl.truststore.location": str(kafka.folder / "client-trust.jks")})
    with pytest.raises(InvalidOption, match=r"kafka\.ssl\.truststore\.location.*password is wrong"):
        log_in(kafka.sasl("PLAIN") | {"kafka.ssl.truststore.password": "wrong"})


@pytest.mark.timeout(900)
def test_a_pipeline_logs_in_with_scram_over_tls(kafka: SecuredKafka, shop: Shop, spark: SparkSession) -> None:
    """Driver, the source's own process and the tasks: all of them connect."""
    there = type(shop)(shop.folder, kafka, spark, f"s{os.getpid()}.")  # type: ignore[arg-type]
    from confluent_kafka.admin import AdminClient, NewTopic

    source, out = f"{there.prefix}in", f"{there.prefix}out"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers, "log_level": 0})
    for done in admin.create_topics([NewTopic(name, 2, 1) for name in (source, out)]).values():
        done.result(60)
    there.produce(source, [{"id": number} for number in range(50)])
    file = there.pipeline(COPY.format(source=source, out=out))
    settings = {name.removeprefix("kafka."): value for name, value in kafka.sasl("SCRAM-SHA-512").items()}
    servers = settings.pop("bootstrap.servers")
    lines = "".join(f'"{name}" = {value!r}\n' for name, value in settings.items())
    file.with_suffix(".toml").write_text(f"[kafka]\n{lines}")
    type(shop)(shop.folder, SimpleNamespace(bootstrap_servers=servers), spark, there.prefix).run(file)  # type: ignore[arg-type]
    assert sorted(each["id"] for each in there.values(out)) == list(range(50))


def test_a_pipeline_says_that_its_login_was_refused(kafka: SecuredKafka, tmp_path: Path) -> None:
    from ottla.pipelines import project

    file = tmp_path / "shop.py"
    settings = {name.removeprefix("kafka."): value for name, value in kafka.sasl("SCRAM-SHA-256", "wrong").items()}
    servers = settings.pop("bootstrap.servers")
    lines = "".join(f'"{name}" = {value!r}\n' for name, value in settings.items())
    file.with_suffix(".toml").write_text(f"[kafka]\n{lines}")
    found = project.override(project.read(file), bootstrap_servers=servers)
    with pytest.raises(PipelineError, match="SASL_AUTHENTICATION_FAILED"):
        topics.connect(found)
