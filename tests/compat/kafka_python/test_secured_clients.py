"""aiokafka and kafka-python over SASL_SSL with each mechanism, and over SSL with certificates (SA02, SA04, SC01, OA02, TL03).

The steps are those of kafka-python's own tests of SASL and TLS, which can only start brokers of their own.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokenProvider
from aiokafka.errors import KafkaError as AioError
from kafka import KafkaAdminClient, KafkaConsumer, KafkaProducer
from kafka.admin import NewTopic
from kafka.errors import KafkaError
from kafka.net.sasl.oauth import AbstractTokenProvider

from ottla.testing import Broker, Security
from tests.kit.tokens import Issuer

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
ISSUER = Issuer()
RECORDS = 100
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
"""kafka-python leaves TLS sockets of connection attempts to the garbage collector."""


class Token(AbstractTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    def token(self) -> str:
        return self._token


class AioToken(AioTokenProvider):
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    keys = tmp_path_factory.mktemp("keys") / "keys.json"
    keys.write_bytes(ISSUER.jwks())
    settings = {
        "sasl.oauthbearer.jwks.endpoint.url": f"file://{keys}",
        "sasl.oauthbearer.allowed.urls": f"file://{keys}",
        "super.users": "User:admin;User:ada",
        "group.initial.rebalance.delay.ms": "0",
    }
    with Broker(settings, security=Security("SASL_SSL", mechanisms=MECHANISMS)) as one:
        yield one
        assert "admin-secret" not in one.log
        assert "Traceback" not in one.log


@pytest.fixture(scope="module")
def with_certificates() -> Iterator[Broker]:
    with Broker(security="SSL", group_initial_rebalance_delay_ms=0) as one:
        yield one


def login(mechanism: str, *, right: bool, provider: type[Any]) -> dict[str, Any]:
    if mechanism == "OAUTHBEARER":
        return {"sasl_oauth_token_provider": provider(ISSUER.token() if right else Issuer("ES256").token())}
    return {"sasl_plain_username": "admin", "sasl_plain_password": "admin-secret" if right else "wrong"}


def kafka_python(broker: Broker, mechanism: str | None, *, right: bool = True) -> dict[str, Any]:
    options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "ssl_cafile": file(broker, "ca.pem")}
    if mechanism is None:
        return options | {
            "security_protocol": "SSL",
            **dict.fromkeys(("ssl_certfile", "ssl_keyfile"), file(broker, "user-admin.pem")),
        }
    return options | {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        **login(mechanism, right=right, provider=Token),
    }


def aiokafka(broker: Broker, mechanism: str | None, *, right: bool = True) -> dict[str, Any]:
    context = ssl.create_default_context(cafile=file(broker, "ca.pem"))
    options: dict[str, Any] = {"bootstrap_servers": broker.bootstrap_servers, "ssl_context": context}
    if mechanism is None:
        context.load_cert_chain(file(broker, "user-admin.pem"))
        return options | {"security_protocol": "SSL"}
    return options | {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": mechanism,
        **login(mechanism, right=right, provider=AioToken),
    }


def file(broker: Broker, name: str) -> str:
    assert broker.data_dir is not None
    return str(Path(broker.data_dir).parent / f"{broker.data_dir.name}-security" / name)


def of_kafka_python(options: dict[str, Any], topic: str) -> list[bytes]:
    admin = KafkaAdminClient(**options)
    admin.create_topics([NewTopic(topic, 2, 1)])
    admin.close()
    producer = KafkaProducer(**options)
    sent = [producer.send(topic, value=b"%d" % number, partition=number % 2) for number in range(RECORDS)]
    producer.flush()
    assert all(each.succeeded() for each in sent)
    producer.close()
    consumer = KafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", consumer_timeout_ms=30_000, **options)
    values = [record.value for _, record in zip(range(RECORDS), consumer, strict=False)]
    consumer.close()
    return values


async def of_aiokafka(options: dict[str, Any], topic: str) -> list[bytes]:
    producer = AIOKafkaProducer(**options)
    await producer.start()
    for number in range(RECORDS):
        await producer.send(topic, b"%d" % number)
    await producer.stop()
    consumer = AIOKafkaConsumer(topic, group_id=topic, auto_offset_reset="earliest", **options)
    await consumer.start()
    try:
        return [(await consumer.getone()).value for _ in range(RECORDS)]
    finally:
        await consumer.stop()


ALL = sorted(b"%d" % number for number in range(RECORDS))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_produces_and_consumes(broker: Broker, mechanism: str) -> None:
    assert sorted(of_kafka_python(kafka_python(broker, mechanism), f"kp-{mechanism}")) == ALL


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_produces_and_consumes(broker: Broker, mechanism: str) -> None:
    values = asyncio.run(asyncio.wait_for(of_aiokafka(aiokafka(broker, mechanism), f"aio-{mechanism}"), 60))
    assert sorted(values) == ALL


def test_kafka_python_with_a_certificate(with_certificates: Broker) -> None:
    assert sorted(of_kafka_python(kafka_python(with_certificates, None), "kp")) == ALL


def test_aiokafka_with_a_certificate(with_certificates: Broker) -> None:
    assert sorted(asyncio.run(asyncio.wait_for(of_aiokafka(aiokafka(with_certificates, None), "aio"), 60))) == ALL


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
def test_aiokafka_hears_that_its_credentials_are_wrong(broker: Broker, mechanism: str) -> None:
    """Not with OAUTHBEARER: aiokafka 0.14 takes the server's `invalid_token` for success, and then finds no brokers."""

    async def start() -> None:
        producer = AIOKafkaProducer(**aiokafka(broker, mechanism, right=False))
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(AioError):
        asyncio.run(asyncio.wait_for(start(), 60))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_hears_that_its_credentials_are_wrong(broker: Broker, mechanism: str) -> None:
    with pytest.raises(KafkaError):
        KafkaAdminClient(**kafka_python(broker, mechanism, right=False), bootstrap_timeout_ms=3000).close()
