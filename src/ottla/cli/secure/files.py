"""The settings of a secured cluster: server.properties for each broker, client.properties, and the first user's credentials.

Clients log in over SASL_SSL with SCRAM. Brokers know each other by their certificates, on a listener of their own: they need no
password before the first one of them runs.
"""

from __future__ import annotations

import os
import secrets
from dataclasses import dataclass
from pathlib import Path

from ottla.cluster.settings import BROKER_SETTINGS
from ottla.security.scram_credential import SCRAM_HASHES, ScramCredential

CLIENTS, BROKERS = "SASL_SSL", "BROKERS"
_ITERATIONS = 8192
_BROKER_USER = "broker"


@dataclass(frozen=True, slots=True)
class Node:
    number: int
    host: str
    port: int
    """Of clients. The next one is for brokers."""


def users(admin: str, password: str) -> str:
    """Salted: the file does not have the password."""
    lines = []
    for mechanism in SCRAM_HASHES:
        credential = ScramCredential.of_password(mechanism, secrets.token_bytes(32), password, _ITERATIONS)
        lines.append(f"{_escaped(admin)}.{mechanism}={credential.text()}\n")
    return "".join(lines)


def server_properties(node: Node, folder: Path, admin: str, token_secret: str, brokers: int, zookeeper: str | None) -> str:
    address = f"{node.host}:{node.port}" if ":" not in node.host else f"[{node.host}]:{node.port}"
    lines = {
        "broker.id": str(node.number),
        "listeners": f"{CLIENTS}://:{node.port}",
        "advertised.listeners": f"{CLIENTS}://{address}",
        "inter.broker.listener.name": CLIENTS,
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / f"broker-{node.number}.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
        "sasl.enabled.mechanisms": ",".join(SCRAM_HASHES),
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": f"User:{admin}",
        "delegation.token.secret.key": token_secret,
        "ottla.bootstrap.users.file": str(folder / "users.properties"),
        "log.dirs": str(folder / f"data-{node.number}"),
    }
    if brokers > 1:
        between = address.rpartition(":")[0]
        replicas = min(brokers, 3)
        lines |= {
            "listeners": f"{CLIENTS}://:{node.port},{BROKERS}://:{node.port + 1}",
            "advertised.listeners": f"{CLIENTS}://{address},{BROKERS}://{between}:{node.port + 1}",
            "listener.security.protocol.map": f"{CLIENTS}:SASL_SSL,{BROKERS}:SSL",
            "inter.broker.listener.name": BROKERS,
            f"listener.name.{BROKERS.lower()}.ssl.client.auth": "required",
            "ssl.principal.mapping.rules": f"RULE:^CN=broker-[0-9]+$/{_BROKER_USER}/,DEFAULT",
            "super.users": f"User:{admin};User:{_BROKER_USER}",
            "zookeeper.connect": zookeeper or "127.0.0.1:2181",
            "default.replication.factor": str(replicas),
            "min.insync.replicas": str(max(replicas - 1, 1)),
            "offsets.topic.replication.factor": str(replicas),
            "transaction.state.log.replication.factor": str(replicas),
            "transaction.state.log.min.isr": str(max(replicas - 1, 1)),
        }
    used = {name: value for name, value in lines.items() if name.startswith("listener.") or BROKER_SETTINGS[name].used}
    return "".join(f"{name}={_value(value)}\n" for name, value in used.items())


def client_properties(servers: str, folder: Path, user: str, password: str) -> str:
    login = "org.apache.kafka.common.security.scram.ScramLoginModule required"
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in (user, password))
    lines = {
        "bootstrap.servers": servers,
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": '{} username="{}" password="{}";'.format(login, *quoted),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.pem"),
    }
    return "".join(f"{name}={_value(value)}\n" for name, value in lines.items())


def write_secret(path: Path, text: str) -> None:
    """Readable by its owner only, from the first moment."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with open(descriptor, "w") as file:
        file.write(text)


def _value(text: str) -> str:
    """Text, escaped as a value in a properties file."""
    return text.replace("\\", "\\\\").replace("\n", "\\n")


def _escaped(text: str) -> str:
    """Text, escaped as a name in a properties file."""
    return "".join(f"\\{character}" if character in " :=#!\\" else character for character in text)
