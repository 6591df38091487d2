"""Security of a broker for tests: certificates, users and ACLs, made when the broker starts.

    with Broker(security="SASL_SSL") as broker:
        Producer(broker.client_config("alice"))

Users are `admin`, who may do everything, and `alice`; their passwords are `admin-secret` and `alice-secret`. Certificates are
valid for localhost.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_ITERATIONS: Final = 4096
_DAYS: Final = 30
_LOGIN: Final = "org.apache.kafka.common.security.{}LoginModule required"
_USERS: Final = {"admin": "admin-secret", "alice": "alice-secret"}


@dataclass(frozen=True)
class Security:
    """What a broker for tests is secured with."""

    protocol: str = "SASL_SSL"
    """Of the listener: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
    users: Mapping[str, str] = field(default_factory=lambda: dict(_USERS))
    """Passwords by name. On an SSL listener each user has a certificate instead."""
    super_users: tuple[str, ...] = ("admin",)
    acls: bool = True
    """Whether other users need ACLs."""
    client_auth: bool = True
    """Whether an SSL listener requires certificates of clients."""

    def __post_init__(self) -> None:
        if self.protocol not in PROTOCOLS:
            raise ValueError(f"{self.protocol!r} is no security protocol; there are {', '.join(PROTOCOLS)}")

    @property
    def encrypted(self) -> bool:
        return self.protocol.endswith("SSL")

    @property
    def authenticates(self) -> bool:
        return self.protocol.startswith("SASL")

    def write(self, folder: Path) -> dict[str, str]:
        """Make the files in a folder, once. Returns the settings of the broker, without its listeners."""
        settings: dict[str, str] = {}
        if self.acls:
            principals = [f"User:{name}" if self.authenticates else f"User:CN={name}" for name in self.super_users]
            settings["authorizer.class.name"] = "kafka.security.authorizer.AclAuthorizer"
            settings["super.users"] = ";".join(principals if self.protocol != "PLAINTEXT" else ["User:ANONYMOUS"])
        if self.encrypted:
            self._certificates(folder)
            settings |= {
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(folder / "broker.pem"),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(folder / "ca.pem"),
            }
            if not self.authenticates and self.client_auth:
                settings["ssl.client.auth"] = "required"
        if self.authenticates:
            settings["sasl.enabled.mechanisms"] = ",".join(self.mechanisms)
            settings["ottla.bootstrap.users.file"] = str(self._scram_users(folder))
            names = " ".join(f'user_{name}="{_quoted(password)}"' for name, password in self.users.items())
            prefix = f"listener.name.{self.protocol.lower()}.plain."
            if "PLAIN" in self.mechanisms:
                settings[f"{prefix}sasl.jaas.config"] = f"{_LOGIN.format('plain.Plain')} {names};"
        return settings

    def client_properties(self, folder: Path, user: str, mechanism: str | None = None) -> dict[str, str]:
        """Client properties of a user, with the names of Java's clients."""
        properties = {"security.protocol": self.protocol}
        if self.encrypted:
            properties |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(folder / "ca.pem")}
        if self.encrypted and not self.authenticates:
            properties |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": str(folder / f"user-{user}.pem")}
        if self.authenticates:
            chosen = mechanism or self.mechanisms[-1]
            module = "plain.Plain" if chosen == "PLAIN" else "scram.Scram"
            login = f'username="{_quoted(user)}" password="{_quoted(self.users[user])}"'
            properties |= {"sasl.mechanism": chosen, "sasl.jaas.config": f"{_LOGIN.format(module)} {login};"}
        return properties

    def client_config(self, folder: Path, user: str, mechanism: str | None = None) -> dict[str, Any]:
        """The same for confluent-kafka."""
        from ottla.client.librdkafka import librdkafka_properties

        return librdkafka_properties(self.client_properties(folder, user, mechanism))

    def _certificates(self, folder: Path) -> None:
        if (folder / "ca.pem").exists():
            return
        from ottla.tls.authority import issuer

        maker = issuer()
        authority = maker.authority("Ottla test CA", _DAYS)
        hosts = ("localhost", "127.0.0.1", "::1")
        (folder / "broker.pem").write_text("".join(maker.issue(authority, "broker", hosts, _DAYS, is_server=True)))
        for name in self.users:
            (folder / f"user-{name}.pem").write_text("".join(maker.issue(authority, name, (), _DAYS, is_server=False)))
        (folder / "ca.pem").write_text(authority[1])

    def _scram_users(self, folder: Path) -> Path:
        from ottla.security.scram_credential import SCRAM_HASHES, ScramCredential

        path = folder / "users.properties"
        if not path.exists():
            lines = []
            for name, password in self.users.items():
                for mechanism in SCRAM_HASHES:
                    credential = ScramCredential.of_password(mechanism, secrets.token_bytes(16), password, _ITERATIONS)
                    lines.append(f"{name}.{mechanism}={credential.text()}")
            path.write_text("\n".join(lines) + "\n")
        return path


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
