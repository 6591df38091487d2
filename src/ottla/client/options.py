"""Settings of the blocking client, by the names of Java's clients and Spark's connector.

Owns which names are supported and their valid values, with one error message for each invalid one. Never connects.
`ClientOptions` is a frozen value: Spark pickles it to its workers.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

from ottla.client.security import PLAINTEXT, SECURITY_NAMES, ClientSecurity, InvalidOption, client_security

__all__ = ["ClientOptions", "InvalidOption", "client_options", "parse_servers", "plain_options"]

logger = logging.getLogger("ottla.client")

PREFIX = "kafka."
DEFAULT_PORT = 9092

_MILLISECONDS = {
    "request.timeout.ms": "request_timeout_ms",
    "default.api.timeout.ms": "api_timeout_ms",
    "socket.connection.setup.timeout.ms": "connect_timeout_ms",
    "retry.backoff.ms": "retry_backoff_ms",
    "retry.backoff.max.ms": "retry_backoff_max_ms",
    "metadata.max.age.ms": "metadata_max_age_ms",
}
_UNDERSTOOD = SECURITY_NAMES | {"bootstrap.servers", "client.id", *_MILLISECONDS}


@dataclass(frozen=True, slots=True)
class ClientOptions:
    servers: tuple[tuple[str, int], ...]
    client_id: str = "ottla"
    security: ClientSecurity = PLAINTEXT
    request_timeout_ms: int = 30_000
    api_timeout_ms: int = 60_000
    connect_timeout_ms: int = 10_000
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1_000
    metadata_max_age_ms: int = 300_000

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
    """The options of a data source that begin with `kafka.`, in any case.

    `also` names those (without the prefix) that somebody else understands; the rest is warned about and ignored, as Java's
    clients do.
    """
    given = {name.lower()[len(PREFIX) :]: value for name, value in options.items() if name.lower().startswith(PREFIX)}
    for name in sorted(given.keys() - _UNDERSTOOD - set(also)):
        near = get_close_matches(name, _UNDERSTOOD, 1, 0.9)
        meant = f"; did you mean {PREFIX}{near[0]}?" if near else ""
        logger.warning("Ignoring unknown client option %s%s%s", PREFIX, name, meant)
    servers = given.get("bootstrap.servers", "")
    try:
        pairs = parse_servers(servers)
    except ValueError as error:
        raise InvalidOption("kafka.bootstrap.servers", str(error), "an address is written as host:port") from None
    if not pairs:
        raise InvalidOption("kafka.bootstrap.servers", servers, "it must name the brokers: host:port,host:port")
    numbers = {into: _milliseconds(given, name) for name, into in _MILLISECONDS.items() if name in given}
    security = client_security(given, PREFIX)
    return ClientOptions(pairs, client_id=given.get("client.id") or "ottla", security=security, **numbers)


def _milliseconds(given: Mapping[str, str], name: str) -> int:
    value = given[name].strip()
    if not value.isdecimal() or not 0 < int(value) < 1 << 31:
        raise InvalidOption(PREFIX + name, given[name], "it is a number of milliseconds above 0")
    return int(value)
