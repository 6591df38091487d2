"""Serves the last page over HTTP, from threads of its own: `/metrics`, `/healthz`.

A scrape takes the text that is there, whatever the rounds are doing. `/healthz` says that the process is alive.
"""

from __future__ import annotations

import gzip
import http.server
import logging
import socket
import threading
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

from ottla.metrics.exposition import PROMETHEUS

logger = logging.getLogger(__name__)

_IDLE_TIMEOUT_S: Final = 30.0
_PLAIN: Final = "text/plain; charset=utf-8"


class MetricsServer:
    """Listens from `start` to `close`."""

    def __init__(self, host: str, port: int, text: Callable[[], bytes]) -> None:
        """OSError if the address cannot be used. `text` is called in several threads."""

        class Handler(_Handler):
            metrics = staticmethod(text)

        family = _Server6 if ":" in host else _Server
        self._server = family((host, port), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever, name="ottla-exporter-http", daemon=True)

    @property
    def port(self) -> int:
        return int(self._server.server_address[1])

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def server_bind(self) -> None:
        # The base class asks the name service for the name of the host, which may take seconds.
        super(http.server.HTTPServer, self).server_bind()
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("Request from %s failed", client_address, exc_info=True)


class _Server6(_Server):
    address_family = socket.AF_INET6


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = _IDLE_TIMEOUT_S
    server_version, sys_version = "ottla-exporter", ""
    metrics: Callable[[], bytes]

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        if path == "/metrics":
            self._answer(HTTPStatus.OK, self.metrics(), PROMETHEUS)
        elif path == "/healthz":
            self._answer(HTTPStatus.OK, b"ok\n", _PLAIN)
        else:
            self._answer(HTTPStatus.NOT_FOUND, b"metrics are at /metrics\n", _PLAIN)

    do_HEAD = do_GET

    def _answer(self, status: HTTPStatus, body: bytes, content_type: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        if "gzip" in self.headers.get("Accept-Encoding", ""):
            body = gzip.compress(body, compresslevel=1)
            self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)
