"""Connections: how many there are, and who is connected."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Hashable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeAlias

from ottla.broker.network.connection import Connection
from ottla.broker.network.measuring import ConnectionTraffic
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.network.socket_server import SocketServer
from ottla.metrics.family import Family, family
from ottla.metrics.table import METRICS, SOCKETS
from ottla.types import TopicPartition

Watched: TypeAlias = "Mapping[asyncio.Future[Any], Sequence[Hashable]]"

PROCESSOR: Final = "0"
"""Label `networkProcessor`: there is one loop."""
WINDOW: Final = 4
"""Samples of the rates. One is taken every SAMPLE_S."""
SAMPLE_S: Final = 10
_NOTHING: Final = ConnectionTraffic()
_UNKNOWN: Final = "unknown"


class ConnectionRates:
    """Accepted and closed connections per second in the last half minute, by listener."""

    def __init__(self, server: SocketServer) -> None:
        self._server = server
        self._samples: deque[tuple[float, dict[str, tuple[int, int]]]] = deque(maxlen=WINDOW)

    def sample(self, now: float) -> None:
        self._samples.append((now, self._counts()))

    def per_second(self, now: float) -> dict[str, tuple[float, float]]:
        since, before = self._samples[0] if self._samples else (now, {})
        passed = max(now - since, 1.0)
        return {
            name: ((accepted - before.get(name, (0, 0))[0]) / passed, (closed - before.get(name, (0, 0))[1]) / passed)
            for name, (accepted, closed) in self._counts().items()
        }

    def _counts(self) -> dict[str, tuple[int, int]]:
        return {use.name: (use.accepted, use.accepted - use.connections) for use in self._server.listeners}


def connection_families(server: SocketServer, rates: ConnectionRates) -> Iterator[Family]:
    listeners = server.listeners
    per_second = rates.per_second(server.loop.time())
    for name, value_of in (
        ("connection_count", lambda use: use.connections),
        ("connection_creation_total", lambda use: use.accepted),
        ("connection_close_total", lambda use: use.accepted - use.connections),
        ("connection_creation_rate", lambda use: round(per_second[use.name][0], 3)),
        ("connection_close_rate", lambda use: round(per_second[use.name][1], 3)),
    ):
        yield family(METRICS[f"{SOCKETS}_{name}"], [((use.name, PROCESSOR), value_of(use)) for use in listeners])
    software = sorted(_by_software(server).items())
    yield family(
        METRICS[f"{SOCKETS}_connections"],
        [((name, version, listener, PROCESSOR), count) for (name, version, listener), count in software],
    )
    yield family(METRICS[f"{SOCKETS}_connections_software"], software)


def _by_software(server: SocketServer) -> Counter[tuple[str, str, str]]:
    found: Counter[tuple[str, str, str]] = Counter()
    for connection in server.connections():
        found[*_software(connection), connection.listener_name] += 1
    return found


def _software(connection: Connection) -> tuple[str, str]:
    """Name and version of the client, as it told them."""
    session = connection.session
    return session.software_name or _UNKNOWN, session.software_version or _UNKNOWN


def described(server: SocketServer, purgatory: Purgatory) -> list[dict[str, Any]]:
    """Every open connection, as JSON tells it."""
    now, watched = server.loop.time(), purgatory.watched_by()
    return [_described(each, now, watched) for each in sorted(server.connections(), key=lambda each: each.number)]


def _described(connection: Connection, now: float, watched: Watched) -> dict[str, Any]:
    traffic = connection.traffic or _NOTHING
    software_name, software_version = _software(connection)
    return {
        "listener": connection.listener_name,
        "address": connection.client_host,
        "port": connection.client_port,
        "client_id": traffic.client_id,
        "software_name": software_name,
        "software_version": software_version,
        "principal": str(connection.session.principal),
        "age_seconds": round(now - connection.since, 3),
        "idle_seconds": round(now - connection.last_used, 3),
        "waits_in": connection.waits_in,
        "waits_for": _partitions(connection, watched),
        "requests": traffic.requests,
        "bytes_in": traffic.bytes_in,
        "bytes_out": traffic.bytes_out,
    }


def _partitions(connection: Connection, watched: Watched) -> dict[str, list[int]]:
    """The partitions, by topic, for which a request waits in the purgatory."""
    found: dict[str, list[int]] = {}
    future = connection.waits_for
    for key in watched.get(future, ()) if future is not None else ():
        if isinstance(key, TopicPartition):
            found.setdefault(key.topic, []).append(key.partition)
    return found
