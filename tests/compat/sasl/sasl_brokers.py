"""Ottla, or Apache Kafka 3.9 on ZooKeeper, with the same SASL listeners.

| listener | protocol | mechanisms |
|---|---|---|
| PLAINTEXT | PLAINTEXT | |
| IN | SASL_PLAINTEXT | PLAIN, SCRAM-SHA-256, SCRAM-SHA-512 |
| SHORT | SASL_PLAINTEXT | the same, in sessions of `SESSION_MS` |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from ottla.runtime.free_ports import free_port
from ottla.testing import Broker
from tests.kit.peers import KAFKA_3, ApacheKafka

APACHE = f"kafka-{KAFKA_3}"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = f'{MODULE} username="admin" password="planted-a" user_admin="planted-a" user_ada="planted-p" user_bob="planted-b";'
SCRAM = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="carol" password="planted-s";'
SCRAM_USERS = {"carol": "planted-s", "dave": "planted-d", "a,b=c": "planted-e"}
SESSION_MS = 3000


@dataclass(frozen=True, slots=True)
class SaslBroker:
    name: str
    plaintext: str
    sasl: str
    """The listener IN."""
    short: str
    log: Callable[[], str] = str

    def client(self, user: str, password: str, mechanism: str = "PLAIN", *, short: bool = False) -> dict[str, str]:
        """Options of librdkafka."""
        return {
            "bootstrap.servers": self.short if short else self.sasl,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
        }


def java_client(user: str, password: str, mechanism: str = "PLAIN", **more: str) -> str:
    """Properties of Java's client."""
    module = "scram.ScramLoginModule" if mechanism.startswith("SCRAM") else "plain.PlainLoginModule"
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": (
            f'org.apache.kafka.common.security.{module} required username="{user}" password="{password}"'
            f"{' tokenauth=true' if more.pop('tokenauth', '') else ''};"
        ),
        **more,
    }
    return "".join(f"{name}={value}\n" for name, value in properties.items())


def settings(plain: int, sasl: int, short: int) -> dict[str, Any]:
    names = ("in", "short")
    mechanisms = "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512"
    return {
        "listeners": f"PLAINTEXT://127.0.0.1:{plain},IN://127.0.0.1:{sasl},SHORT://127.0.0.1:{short}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,IN:SASL_PLAINTEXT,SHORT:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": mechanisms,
        "connection.failed.authentication.delay.ms": "10",
        **{f"listener.name.{name}.plain.sasl.jaas.config": USERS for name in names},
        **{
            f"listener.name.{name}.scram-sha-{size}.sasl.jaas.config": SCRAM  # Kafka wants one of each mechanism
            for name in names
            for size in (256, 512)
        },
        **{
            f"listener.name.short.{mechanism}.connections.max.reauth.ms": str(SESSION_MS)
            for mechanism in mechanisms.lower().split(",")
        },
        "auto.create.topics.enable": "true",
    }


@contextmanager
def sasl_broker(name: str = "ottla", **more: str) -> Iterator[SaslBroker]:
    ports = free_port(), free_port(), free_port()
    plaintext, sasl, short = (f"127.0.0.1:{port}" for port in ports)
    given = settings(*ports) | more
    broker = SaslBroker(name, plaintext, sasl, short)
    if name == "ottla":
        with Broker({"broker.id": "1", "group.initial.rebalance.delay.ms": "0"} | given) as ottla:
            add_scram_users(broker)
            yield replace(broker, log=lambda: ottla.log)
        return
    kafka = ApacheKafka(KAFKA_3, **given)
    kafka.port = ports[0]  # where it is asked whether it serves
    with kafka:
        add_scram_users(broker)
        yield broker


def add_scram_users(broker: SaslBroker) -> None:
    admin = AdminClient({"bootstrap.servers": broker.plaintext})
    for mechanism in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
        for user, password in SCRAM_USERS.items():
            upsertion = UserScramCredentialUpsertion(user, ScramCredentialInfo(mechanism, 4096), password.encode())
            for done in admin.alter_user_scram_credentials([upsertion]).values():
                done.result(30)
