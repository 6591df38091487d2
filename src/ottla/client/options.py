"""Settings of the blocking client, by the names of Java's clients and Spark's connector.

Owns which names are supported and their valid values, with one error message for each invalid one. Never connects.
`ClientOptions` is a frozen value: Spark pickles it to its workers.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

logger = logging.getLogger("ottla.client")

PREFIX = "kafka."
DEFAULT_PORT = 9092
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

STORES = ("PEM", "JKS", "PKCS12")

_MILLISECONDS = {
    "request.timeout.ms": "request_timeout_ms",
    "default.api.timeout.ms": "api_timeout_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "retry.backoff.max.ms": "retry_backoff_max_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
}
_UNDERSTOOD = frozenset(
    {
        "bootstrap.servers",
        "client.id",
        "security.protocol",
        "sasl.mechanism",
        "sasl.jaas.config",
        "sasl.username",
        "sasl.password",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.keystore.type",
        "ssl.keystore.location",
        "ssl.keystore.password",
        "ssl.keystore.certificate.chain",
        "ssl.keystore.key",
        "ssl.key.password",
        "ssl.endpoint.identification.algorithm",
        *_MILLISECONDS,
    }
)
_JAAS = re.compile(r"""(username|password)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|'((?:[^'\\]|\\.)*)'|([^\s;"']+))""")


class InvalidOption(ValueError):
    """An invalid option. The message names it and what is allowed."""

    def __init__(self, name: str, value: object, allowed: str) -> None:
        super().__init__(f"option {name}: {value!r} is not possible, {allowed}")
        self.name = name


@dataclass(frozen=True, slots=True)
class ClientOptions:
    servers: tuple[tuple[str, int], ...]
    client_id: str = "ottla"
    security_protocol: str = "PLAINTEXT"
    sasl_mechanism: str = "PLAIN"
    sasl_username: str = ""
    sasl_password: str = field(default="", repr=False)
    ssl_trust_file: str | None = None
    ssl_trust_password: str | None = field(default=None, repr=False)
    ssl_trust_pem: str | None = None
    """PEM certificates, instead of a file."""
    ssl_key_file: str | None = None
    ssl_key_file_password: str | None = field(default=None, repr=False)
    ssl_key_pem: str | None = field(default=None, repr=False)
    """The key and its certificates as PEM, instead of a file."""
    ssl_key_password: str | None = field(default=None, repr=False)
    ssl_check_host: bool = True
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000

    @property
    def encrypted(self) -> bool:
        return self.security_protocol.endswith("SSL")

    @property
    def authenticates(self) -> bool:
        return self.security_protocol.startswith("SASL")

    def __str__(self) -> str:
        return ",".join(f"{host}:{port}" for host, port in self.servers)


def parse_servers(servers: str) -> tuple[tuple[str, int], ...]:
    """`host:port,[v6]:port` as pairs; port 9092 by default. ValueError with the part that is not an address."""
    pairs = []
    for server in filter(None, (part.strip() for part in servers.split(","))):
        address = server.rpartition("://")[2]
        if address.startswith("["):
            host, _, port = address[1:].partition("]")
            port = port.removeprefix(":")
        elif address.count(":") > 1:
            host, port = address, ""
        else:
            host, _, port = address.partition(":")
        if not host or (port and not port.isdecimal()) or int(port or DEFAULT_PORT) > 65535:
            raise ValueError(server)
        pairs.append((host, int(port or DEFAULT_PORT)))
    return tuple(pairs)


def plain_options(bootstrap_servers: str, **changes: Any) -> ClientOptions:
    """Options for tools and tests that know an address and fields of `ClientOptions`."""
    return replace(client_options({"kafka.bootstrap.servers": bootstrap_servers}), **changes)


def client_options(options: Mapping[str, str], also: Collection[str] = ()) -> ClientOptions:
    """From the options of a data source: all that begin with `kafka.`, in any case.

    `also` names those (without the prefix) that somebody else understands; the rest is warned about and ignored, as Java's
    clients do.
    """
    given = {name.lower()[len(PREFIX) :]: value for name, value in options.items() if name.lower().startswith(PREFIX)}
    for name in sorted(given.keys() - _UNDERSTOOD - set(also)):
        logger.warning("Ignoring unknown client option %s%s", PREFIX, name)
    servers = given.get("bootstrap.servers", "")
    try:
        pairs = parse_servers(servers)
    except ValueError as error:
        raise InvalidOption("kafka.bootstrap.servers", str(error), "an address is written as host:port") from None
    if not pairs:
        raise InvalidOption("kafka.bootstrap.servers", servers, "it must name the brokers: host:port,host:port")
    protocol = _one_of(given, "security.protocol", PROTOCOLS)
    numbers = {into: _milliseconds(given, name) for name, into in _MILLISECONDS.items() if name in given}
    username, password = _credentials(given) if protocol.startswith("SASL") else ("", "")
    return ClientOptions(
        pairs,
        client_id=given.get("client.id") or "ottla",
        security_protocol=protocol,
        sasl_mechanism=_one_of(given, "sasl.mechanism", MECHANISMS) if protocol.startswith("SASL") else "PLAIN",
        sasl_username=username,
        sasl_password=password,
        ssl_trust_file=_store(given, "ssl.truststore"),
        ssl_trust_password=given.get("ssl.truststore.password"),
        ssl_trust_pem=given.get("ssl.truststore.certificates"),
        ssl_key_file=_store(given, "ssl.keystore"),
        ssl_key_file_password=given.get("ssl.keystore.password"),
        ssl_key_pem=_key_and_chain(given),
        ssl_key_password=given.get("ssl.key.password"),
        ssl_check_host=given.get("ssl.endpoint.identification.algorithm", "https") != "",
        **numbers,
    )


def _one_of(given: Mapping[str, str], name: str, allowed: tuple[str, ...]) -> str:
    value = given.get(name, allowed[0]).upper()
    if value not in allowed:
        raise InvalidOption(PREFIX + name, given[name], f"it is one of {', '.join(allowed)}")
    return value


def _milliseconds(given: Mapping[str, str], name: str) -> int:
    value = given[name].strip()
    if not value.isdecimal() or not 0 < int(value) < 1 << 31:
        raise InvalidOption(PREFIX + name, given[name], "it is a number of milliseconds above 0")
    return int(value)


def _credentials(given: Mapping[str, str]) -> tuple[str, str]:
    """User and password from `sasl.jaas.config`, or from librdkafka's two options."""
    jaas = {
        name: re.sub(r"\\(.)", r"\1", double or single) or bare
        for name, double, single, bare in _JAAS.findall(given.get("sasl.jaas.config", ""))
    }
    username = given.get("sasl.username", jaas.get("username", ""))
    if not username:
        raise InvalidOption(
            "kafka.sasl.jaas.config",
            "" if "sasl.jaas.config" not in given else "…",
            'it must hold username="…" password="…" (or kafka.sasl.username and kafka.sasl.password are given)',
        )
    return username, given.get("sasl.password", jaas.get("password", ""))


def _store(given: Mapping[str, str], store: str) -> str | None:
    """The path of a store. It is read later, on the machine that connects."""
    kind = given.get(f"{store}.type", "PEM")
    if kind.upper() not in STORES:
        raise InvalidOption(f"{PREFIX}{store}.type", kind, f"it is one of {', '.join(STORES)}")
    return given.get(f"{store}.location")


def _key_and_chain(given: Mapping[str, str]) -> str | None:
    key, chain = given.get("ssl.keystore.key"), given.get("ssl.keystore.certificate.chain")
    if (key is None) != (chain is None):
        missing = "ssl.keystore.key" if key is None else "ssl.keystore.certificate.chain"
        raise InvalidOption(PREFIX + missing, "", "a key and its certificates are given together")
    return None if key is None else f"{key}\n{chain}\n"
