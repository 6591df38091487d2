"""A registry on a port: builds the parts, reads the log, opens the port, and ends them in order."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import logging
import signal
import socket
import ssl
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import uvicorn

from ottla.client.blocking import BrokerAway
from ottla.client.brokers import BrokerFailed, Brokers
from ottla.client.options import ClientOptions
from ottla.errors import KafkaError
from ottla.metrics import Counters
from ottla.registry.election import GROUP_ID, Identity
from ottla.registry.http.app import App
from ottla.registry.http.forwarding import Forwarder
from ottla.registry.logins import Logins
from ottla.registry.partition import WrongTopic, ensure_topic
from ottla.registry.rules import EVERYTHING, Rules
from ottla.registry.service import Assembled, assembled
from ottla.registry.workers import Workers
from ottla.runtime.clock import SystemClock
from ottla.runtime.network import RealNetwork

TOPIC: Final = "_schemas"
_READ_TIMEOUT_S: Final = 600.0
_CLIENT_ID: Final = "ottla-registry"
_CONNECTIONS_MAX: Final = 1000
_LEAVE_S: Final = 1

logger = logging.getLogger("ottla.registry")


class StartupError(Exception):
    """The registry cannot start. The message says why and what to do."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    certificate: str
    key: str | None = None
    trusted: str | None = None
    """The certificates that the other registries' are signed by; None: the own one, and those that the machine trusts."""

    def client_context(self) -> ssl.SSLContext:
        """For requests to the leader. OSError, ssl.SSLError."""
        context = ssl.create_default_context()
        context.load_verify_locations(self.trusted or self.certificate)
        return context


@dataclass(frozen=True, slots=True)
class Settings:
    kafka: ClientOptions
    identity: Identity
    logs_in: bool = False
    """Whether HTTP clients log in as users of the cluster."""
    rules: Rules = EVERYTHING
    tls: TlsFiles | None = None
    topic: str = TOPIC
    group_id: str = GROUP_ID


async def serve(settings: Settings, sock: socket.socket, owner: socket.socket | None = None) -> None:
    """Serve until SIGTERM, SIGINT, or the other end of `owner` closes, which hears when the port is open. StartupError."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    if owner is not None:
        loop.add_reader(owner, _on_readable, owner, stopped)
    is_open = asyncio.Event()
    serving = loop.create_task(_serve(settings, sock, owner, stopped, is_open))
    stopping = loop.create_task(stopped.wait())
    await asyncio.wait([stopping, serving], return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if not is_open.is_set():
        serving.cancel()  # it may wait for a broker for long
    with contextlib.suppress(asyncio.CancelledError):
        await serving


async def _serve(
    settings: Settings, sock: socket.socket, owner: socket.socket | None, stopped: asyncio.Event, is_open: asyncio.Event
) -> None:
    network = RealNetwork(Counters())
    kafka = settings.kafka

    def connect(timeout_s: float) -> Brokers:
        return Brokers(network, kafka.servers, kafka.security, client_id=_CLIENT_ID, timeout_s=timeout_s)

    made: Assembled | None = None
    began_s = time.monotonic()
    try:
        cluster_id = await asyncio.to_thread(ensure_topic, kafka, settings.topic)
        made = assembled(
            connect,
            Workers(),
            SystemClock().now_ms,
            topic=settings.topic,
            group_id=settings.group_id,
            identity=settings.identity,
            cluster_id=cluster_id,
        )
        registry = made.registry
        await registry.start(made.membership, _READ_TIMEOUT_S)
        gc.freeze()  # what was read stays: no collection looks at it again
        count = sum(1 for _ in registry.state)
        logger.info("Read %d schema versions of %s in %.1f s", count, settings.topic, time.monotonic() - began_s)
        logins = Logins(network, kafka) if settings.logs_in else None
        tls = settings.tls
        config = uvicorn.Config(
            App(registry, Forwarder(tls.client_context() if tls is not None else None), logins, settings.rules),
            ssl_certfile=tls.certificate if tls is not None else None,
            ssl_keyfile=tls.key if tls is not None else None,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=_CONNECTIONS_MAX,
            timeout_graceful_shutdown=_LEAVE_S,
            ws="none",
            http="h11",
        )
        server = _Server(config)
        is_open.set()
        logger.info("Schema registry at %s", settings.identity.url)
        if owner is not None:
            owner.sendall(f"{settings.identity.url}\n".encode())
        leaving = asyncio.create_task(_leave(server, stopped))
        try:
            await server.serve(sockets=[sock])
        finally:
            leaving.cancel()
    except WrongTopic as error:
        raise StartupError(str(error)) from None
    except (BrokerAway, BrokerFailed) as error:
        raise StartupError(f"no broker answers: {error}") from None
    except KafkaError as error:
        raise StartupError(f"topic {settings.topic}: {error}") from None
    except ssl.SSLError as error:
        raise StartupError(f"the TLS certificate or key cannot be used: {error}") from None
    except TimeoutError:
        raise StartupError(f"topic {settings.topic} was not read to its end in {_READ_TIMEOUT_S:.0f} s") from None
    finally:
        if made is not None:
            await made.registry.close()
            for each in made.partitions:
                each.close()


async def _leave(server: uvicorn.Server, stopped: asyncio.Event) -> None:
    await stopped.wait()
    server.should_exit = True


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """`serve` handles the signals: uvicorn would raise them again after its end."""
        yield


def _on_readable(owner: socket.socket, stopped: asyncio.Event) -> None:
    with contextlib.suppress(OSError):
        if owner.recv(4096):
            return
    asyncio.get_running_loop().remove_reader(owner)  # at its end it stays readable
    stopped.set()
