"""Binds the configured listeners, and the connection limits that the settings give."""

from __future__ import annotations

import errno
import os

from ottla.broker.network.socket_server import ConnectionLimits, SocketServer
from ottla.broker.startup_error import StartupError
from ottla.cluster.image import Endpoint
from ottla.cluster.settings import BrokerSettings
from ottla.cluster.settings.broker import connection_overrides

_REASONS = {
    errno.EADDRINUSE: "another program uses that port",
    errno.EACCES: "no permission for that port",
    errno.EADDRNOTAVAIL: "this machine does not have that address",
}


async def bind_listeners(server: SocketServer, settings: BrokerSettings) -> tuple[dict[str, int], tuple[Endpoint, ...]]:
    """Returns the bound ports by listener name, and the advertised endpoints."""
    listeners = settings.listeners()
    ports: dict[str, int] = {}
    for endpoint in listeners.bind:
        try:
            ports[endpoint.listener] = await server.listen(endpoint.listener, endpoint.host, endpoint.port)
        except OSError as error:
            reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
            raise StartupError(f"cannot listen on {endpoint}: {reason}") from error
    return ports, listeners.resolve(ports, os.uname().nodename)


def connection_limits(settings: BrokerSettings) -> ConnectionLimits:
    idle_ms = settings.int("connections.max.idle.ms")
    listeners = settings.listeners()
    return ConnectionLimits(
        connections_max=settings.int("max.connections"),
        per_host_max=settings.int("max.connections.per.ip"),
        per_host_overrides=connection_overrides(settings.str("max.connections.per.ip.overrides"))[0],
        per_listener_max=settings.of_listeners("max.connections"),
        waiting_max=settings.int("socket.listen.backlog.size"),
        creation_rate=settings.int("max.connection.creation.rate"),
        per_listener_creation_rate=settings.of_listeners("max.connection.creation.rate"),
        brokers_listener=listeners.inter_broker if len(listeners.bind) > 1 else None,
        idle_ms_max=idle_ms if idle_ms >= 0 else 1 << 62,
        request_bytes_max=settings.int("socket.request.max.bytes"),
        held_bytes_max=settings.int("queued.max.request.bytes"),
    )
