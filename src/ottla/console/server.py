"""Runs a console in this process until SIGTERM, Ctrl-C, or the end of the process that it belongs to."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import ssl
from collections.abc import Iterator
from typing import Final

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from ottla.cli.console.settings import ConsoleSettings
from ottla.cli.failure import Failure
from ottla.console.app import application
from ottla.console.console import Console
from ottla.runtime.loop import run

logger = logging.getLogger("ottla.console")

BACKLOG: Final = 256
_CONNECTIONS_MAX: Final = 1000
_LEAVE_S: Final = 1
REQUEST_S: Final = 30.0
"""For a request to come whole."""


def serve(settings: ConsoleSettings, owner: int | None = None) -> None:
    """`owner` is a file descriptor: the console ends when its other end closes. Failure if the address cannot be used."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)-7s %(message)s")
    console = Console(settings)
    listening = _listen(settings)
    config = uvicorn.Config(
        application(console),
        lifespan="on",
        log_config=None,
        access_log=False,
        server_header=False,
        date_header=False,
        limit_concurrency=_CONNECTIONS_MAX,
        timeout_graceful_shutdown=_LEAVE_S,
        ssl_certfile=settings.tls_certificate,
        ssl_keyfile=settings.tls_key,
        ssl_version=ssl.PROTOCOL_TLS_SERVER,
        ws="none",
        http=_Connection,
    )
    for noisy in ("uvicorn", "uvicorn.error"):
        logging.getLogger(noisy).setLevel(logging.WARNING)
    if settings.tls_certificate is not None:
        try:
            config.load()
        except (OSError, ssl.SSLError) as error:
            raise Failure(f"the TLS certificate or key cannot be used: {error}", "see --tls-cert and --tls-key") from None
    host, port = listening.getsockname()[:2]
    url = ConsoleSettings(settings.bootstrap_servers, host=host, port=port, tls_certificate=settings.tls_certificate).url
    run(_until_told(_Server(config), listening, owner, f"Console of {console.cluster.brokers} at {url}"))


def _listen(settings: ConsoleSettings) -> socket.socket:
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    found = socket.socket(family)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind((settings.host, settings.port))
        found.listen(BACKLOG)
    except OSError as error:
        found.close()
        where = f"{settings.host}:{settings.port}"
        raise Failure(f"cannot listen on {where}: {error.strerror or error}", "choose another address with --listen") from None
    return found


async def _until_told(server: uvicorn.Server, listening: socket.socket, owner: int | None, told: str) -> None:
    loop = asyncio.get_running_loop()

    def leave() -> None:
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, leave)
    logger.info("%s", told)
    if owner is not None:

        def on_readable() -> None:
            with contextlib.suppress(OSError):
                if os.read(owner, 4096):
                    return
            loop.remove_reader(owner)
            leave()

        loop.add_reader(owner, on_readable)
    await server.serve([listening])


class _Connection(H11Protocol):
    """Is closed if a request has not come whole in `REQUEST_S`: clients that send nothing must not keep others out."""

    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late = self.loop.call_later(REQUEST_S, transport.abort)

    def handle_events(self) -> None:
        super().handle_events()
        if self.conn.their_state not in (h11.IDLE, h11.SEND_BODY):
            self._not_late()
        elif self._late is None:
            self._late = self.loop.call_later(REQUEST_S, self.transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._not_late()
        super().connection_lost(exc)

    def _not_late(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The signals are handled above: uvicorn would raise them again after its end."""
        yield
