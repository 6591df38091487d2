"""The TLS configuration of one listener or client, without any file read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

PROTOCOLS: Final = ("TLSv1.2", "TLSv1.3")


@dataclass(frozen=True, slots=True)
class KeyStore:
    type: str
    """PEM, or one that is told by the content of the file."""
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    key_password: str | None = field(default=None, repr=False)
    key: str | None = field(default=None, repr=False)
    """PEM, instead of a file."""
    certificate_chain: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True)
class TrustStore:
    type: str
    location: str | None = None
    password: str | None = field(default=None, repr=False)
    certificates: str | None = field(default=None, repr=False)
    """PEM, instead of a file."""


@dataclass(frozen=True, slots=True)
class TlsSettings:
    key_store: KeyStore | None = None
    trust_store: TrustStore | None = None
    """None: the certificates that the machine trusts, as Kafka uses those of Java."""
    client_auth: str = "none"
    """As a server: none, requested or required."""
    protocols: tuple[str, ...] = PROTOCOLS
    cipher_suites: tuple[str, ...] = ()
    check_host: bool = True
    """As a client: whether a server's certificate must have its host name."""
    principal_mapping_rules: str = "DEFAULT"
    allow_dn_changes: bool = False
    allow_san_changes: bool = False
