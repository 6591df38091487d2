"""Binds the configured listeners, and reads the limits of connections and the windows of quotas from the settings."""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from ottla.broker.network.socket_server import ConnectionLimits, Login, SocketServer
from ottla.broker.startup_error import StartupError
from ottla.cluster.image import Endpoint
from ottla.cluster.settings import BrokerSettings, SettingsError
from ottla.cluster.settings.broker import connection_overrides
from ottla.security.quotas import QuotaWindows

logger = logging.getLogger(__name__)

if TYPE_CHECKING:
    from ottla.broker.network.listener_tls import TlsOfListeners

_REASONS = {
    errno.EADDRINUSE: "another program uses that port",
    errno.EACCES: "no permission for that port",
    errno.EADDRNOTAVAIL: "this machine does not have that address",
}


def tls_of_listeners(settings: BrokerSettings, now_ms: Callable[[], int], *, in_cluster: bool) -> TlsOfListeners | None:
    """The TLS of the listeners that have it. Their stores are read here."""
    listeners = settings.listeners()
    secured = [endpoint.listener for endpoint in listeners.bind if endpoint.security_protocol.endswith("SSL")]
    if not secured:
        return None
    # Imported here: a broker without TLS starts without it.
    from ottla.broker.network.listener_tls import ListenerTls, TlsOfListeners
    from ottla.tls.context import TlsError

    try:
        return TlsOfListeners(
            [
                ListenerTls(name, settings.tls_of(name), between_brokers=in_cluster and name == listeners.inter_broker)
                for name in secured
            ],
            now_ms,
        )
    except (TlsError, SettingsError) as error:
        raise StartupError(str(error)) from error


def cannot_listen(address: str, error: OSError) -> StartupError:
    reason = _REASONS.get(error.errno or 0) or error.strerror or str(error)
    return StartupError(f"cannot listen on {address}: {reason}")


async def bind_listeners(
    server: SocketServer, settings: BrokerSettings, logins: Mapping[str, Login], tls: TlsOfListeners | None
) -> tuple[dict[str, int], tuple[Endpoint, ...]]:
    """`logins` are those of the SASL listeners, `tls` that of SSL and SASL_SSL listeners. Returns the bound ports by listener
    name, and the advertised endpoints."""
    listeners = settings.listeners()
    ports: dict[str, int] = {}
    for endpoint in listeners.bind:
        try:
            of_listener = tls.get(endpoint.listener) if tls is not None else None
            ports[endpoint.listener] = await server.listen(
                endpoint.listener,
                endpoint.host,
                endpoint.port,
                security_protocol=endpoint.security_protocol,
                login=logins.get(endpoint.listener),
                context=of_listener.server if of_listener is not None else None,
                # On SASL_SSL the login says who the client is.
                principal_of=of_listener.principal_of
                if of_listener is not None and endpoint.security_protocol == "SSL"
                else None,
            )
        except OSError as error:
            raise cannot_listen(str(endpoint), error) from error
    return ports, listeners.resolve(ports, os.uname().nodename)


def connection_limits(settings: BrokerSettings) -> ConnectionLimits:
    idle_ms = settings.int("connections.max.idle.ms")
    listeners = settings.listeners()
    return ConnectionLimits(
        connections_max=settings.int("max.connections"),
        per_host_max=settings.int("max.connections.per.ip"),
        per_host_overrides=_by_address(connection_overrides(settings.str("max.connections.per.ip.overrides"))[0]),
        per_listener_max=settings.of_listeners("max.connections"),
        waiting_max=settings.int("socket.listen.backlog.size"),
        creation_rate=settings.int("max.connection.creation.rate"),
        per_listener_creation_rate=settings.of_listeners("max.connection.creation.rate"),
        brokers_listener=listeners.inter_broker if len(listeners.bind) > 1 else None,
        windows=quota_windows(settings),
        idle_ms_max=idle_ms if idle_ms >= 0 else 1 << 62,
        request_bytes_max=settings.int("socket.request.max.bytes"),
        held_bytes_max=settings.int("queued.max.request.bytes"),
    )


def _by_address(limits: Mapping[str, int]) -> dict[str, int]:
    """Limits of hosts as limits of their addresses, as the operating system writes them. Names are resolved as in Kafka, once."""
    found: dict[str, int] = {}
    for host, limit in limits.items():
        try:
            addresses = {str(info[4][0]) for info in socket.getaddrinfo(host, None)}
        except OSError as error:
            logger.warning("max.connections.per.ip.overrides has no effect for %s: cannot resolve it: %s", host, error)
            continue
        found.update(dict.fromkeys(addresses, limit))
    return found


def quota_windows(settings: BrokerSettings) -> QuotaWindows:
    return QuotaWindows(
        samples=settings.int("quota.window.num"),
        sample_ms=settings.int("quota.window.size.seconds") * 1000,
        controller_samples=settings.int("controller.quota.window.num"),
        controller_sample_ms=settings.int("controller.quota.window.size.seconds") * 1000,
    )
