"""Clients that others wrote, with certificates on an SSL listener: librdkafka, kcat, Java of 3.9 and 4.3 (TL02, TL05, TL06)."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from ottla.runtime.free_ports import free_port
from ottla.testing import Broker
from tests.kit.certificates import Authority
from tests.kit.peers import KAFKA_3, KAFKA_4, program, run_tool
from tests.kit.wait import until

PASSWORD = "store-secret"


@dataclass(frozen=True, slots=True)
class TlsBroker:
    address: str
    folder: Path
    authority: Authority
    broker: Broker

    def client(self) -> dict[str, Any]:
        """Options of librdkafka."""
        return {
            "bootstrap.servers": self.address,
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.folder / "ca.pem"),
            "ssl.certificate.location": str(self.folder / "client.pem"),
            "ssl.key.location": str(self.folder / "client.pem"),
        }

    def java(self, path: Path) -> str:
        path.write_text(
            "security.protocol=SSL\nssl.truststore.type=PEM\nssl.keystore.type=PKCS12\n"
            f"ssl.truststore.location={self.folder / 'ca.pem'}\nssl.keystore.location={self.folder / 'client.p12'}\n"
            f"ssl.keystore.password={PASSWORD}\nssl.key.password={PASSWORD}\n"
        )
        return str(path)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TlsBroker]:
    """Client certificates are required. The broker's key store is PKCS12."""
    folder, authority = tmp_path_factory.mktemp("tls"), Authority()
    authority.pem_file(folder / "ca.pem")
    client = authority.issue("client", ())
    client.pem_file(folder / "client.pem")
    client.pkcs12_file(folder / "client.p12", PASSWORD)
    settings = {
        "broker.id": "1",
        "listeners": f"SSL://127.0.0.1:{free_port()}",
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.location": authority.issue("broker", rsa_key=True).pkcs12_file(folder / "broker.p12", PASSWORD),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "ssl.client.auth": "required",
    }
    with Broker(settings) as running:
        yield TlsBroker(running.bootstrap_servers, folder, authority, running)
        assert PASSWORD not in running.log


@pytest.mark.parametrize("size", [100, 200_000])
def test_librdkafka_produces_and_consumes(broker: TlsBroker, size: int) -> None:
    topic, count = f"rd-{size}", 100
    producer, failed = Producer(broker.client()), []
    for number in range(count):
        producer.produce(topic, b"%d" % number * size, on_delivery=lambda error, _: failed.append(error) if error else None)
        producer.poll(0)
    assert producer.flush(120) == 0
    assert not failed
    consumer = Consumer(broker.client() | {"group.id": topic, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    values: list[bytes | None] = []
    try:
        until(
            lambda: len(values) >= count,
            meanwhile=lambda: values.extend(m.value() for m in consumer.consume(count, 0.2) if not m.error()),
        )
    finally:
        consumer.close()
    assert values == [b"%d" % number * size for number in range(count)]


def test_kcat_lists(broker: TlsBroker) -> None:
    words = [word for name, value in broker.client().items() if name != "bootstrap.servers" for word in ("-X", f"{name}={value}")]
    kcat = program("kcat", "Debian: `apt-get install kcat`")
    done = subprocess.run([kcat, "-L", "-b", broker.address, *words], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert f"broker 1 at {broker.address}" in done.stdout


@pytest.mark.java
@pytest.mark.parametrize("version", [KAFKA_3, KAFKA_4])
def test_java_produces_and_consumes(broker: TlsBroker, tmp_path: Path, version: str) -> None:
    properties = broker.java(tmp_path / "client.properties")
    at = ("--bootstrap-server", broker.address, "--topic", f"java-{version}")
    producer, consumer = (f"--{which}.config" if version == KAFKA_3 else "--command-config" for which in ("producer", "consumer"))
    run_tool(version, "ConsoleProducer", *at, producer, properties, input="a\nb\n", check=True)
    read = run_tool(version, "ConsoleConsumer", *at, "--from-beginning", "--max-messages", "2", consumer, properties, check=True)
    assert read.stdout.split() == ["a", "b"]


@pytest.mark.java
def test_tl05_kafka_configs_replaces_a_certificate(broker: TlsBroker, tmp_path: Path) -> None:
    """With the tool that operators use; the file is new, the setting is not."""
    location = broker.folder / "broker.p12"
    broker.authority.issue("broker", rsa_key=True).pkcs12_file(location, PASSWORD)
    done = run_tool(
        KAFKA_4,
        "ConfigCommand",
        *("--bootstrap-server", broker.address, "--command-config", broker.java(tmp_path / "client.properties")),
        *("--alter", "--entity-type", "brokers", "--entity-name", "1"),
        *("--add-config", f"listener.name.ssl.ssl.keystore.location={location}"),
    )
    assert "Completed updating config" in done.stdout, done.stdout + done.stderr
    assert "Listener SSL uses a new certificate" in broker.broker.log


@pytest.mark.java
def test_java_without_a_certificate_is_refused(broker: TlsBroker, tmp_path: Path) -> None:
    properties = tmp_path / "client.properties"
    properties.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={broker.folder / 'ca.pem'}\n"
        "default.api.timeout.ms=20000\nrequest.timeout.ms=10000\n"
    )
    done = run_tool(KAFKA_4, "TopicCommand", "--bootstrap-server", broker.address, "--list", "--command-config", str(properties))
    assert "SslAuthenticationException" in done.stdout + done.stderr
    assert "it presented no certificate (ssl.client.auth=required)" in broker.broker.log
