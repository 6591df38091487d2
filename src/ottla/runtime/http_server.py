"""A small HTTP server for pages that people and Prometheus read. GET and HEAD only.

Owns the bytes of its connections, never what a page says. One request per connection, then it is closed. Every limit ends only
the connection that exceeds it:

- a request has at most `HEAD_BYTES_MAX`; what is no request closes the connection without an answer
- request and response together take at most `TIMEOUT_S`
- at most `CONNECTIONS_MAX` at a time; further ones are closed at once
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

from ottla.ports import Listener, Network

logger = logging.getLogger(__name__)

HEAD_BYTES_MAX: Final = 8 << 10
TIMEOUT_S: Final = 30.0
CONNECTIONS_MAX: Final = 32
TEXT: Final = "text/plain; charset=utf-8"
_METHODS: Final = ("GET", "HEAD")


@dataclass(frozen=True, slots=True)
class Page:
    body: Sequence[bytes]
    content_type: str = TEXT
    status: HTTPStatus = HTTPStatus.OK
    encoding: str | None = None
    """The Content-Encoding of `body`."""


def text_page(text: str, status: HTTPStatus = HTTPStatus.OK) -> Page:
    return Page([f"{text}\n".encode()], status=status)


@dataclass(frozen=True, slots=True)
class Request:
    method: str
    path: str
    accept: str
    accepts_gzip: bool


Answer = Callable[[Request], Awaitable[Page]]


class HttpServer:
    def __init__(self, network: Network, answer: Answer) -> None:
        self._network = network
        self.answer = answer
        self.open: set[HttpConnection] = set()
        self._listener: Listener | None = None

    async def listen(self, host: str, port: int) -> int:
        """Returns the bound port; OSError if that fails."""
        self._listener = await self._network.listen(lambda: HttpConnection(self), host, port)
        return self._listener.port

    def close(self) -> None:
        if self._listener is not None:
            self._listener.close()
        for connection in list(self.open):
            connection.close()


class HttpConnection(asyncio.Protocol):
    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._head = bytearray()
        self._answering: asyncio.Task[None] | None = None
        self._timeout: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio.Transport in all but name.
        self._transport = transport  # type: ignore[assignment]
        if len(self._server.open) >= CONNECTIONS_MAX:
            self.close()
            return
        self._server.open.add(self)
        self._timeout = self._loop.call_later(TIMEOUT_S, self.close)

    def connection_lost(self, exc: Exception | None) -> None:
        self._server.open.discard(self)
        self._transport = None
        if self._timeout is not None:
            self._timeout.cancel()
        if self._answering is not None:
            self._answering.cancel()

    def data_received(self, data: bytes) -> None:
        if self._answering is not None:
            return  # there is one request per connection
        self._head += data
        end = self._head.find(b"\r\n\r\n")
        if end < 0 and len(self._head) <= HEAD_BYTES_MAX:
            return
        request = _parse(bytes(self._head[:end])) if 0 <= end <= HEAD_BYTES_MAX else None
        if request is None:
            self.close()
            return
        self._answering = self._loop.create_task(self._answer(request))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    async def _answer(self, request: Request) -> None:
        try:
            if request.method not in _METHODS:
                page = text_page("only GET and HEAD", HTTPStatus.METHOD_NOT_ALLOWED)
            else:
                page = await self._server.answer(request)
        except Exception:
            logger.exception("The page %s failed", request.path)
            page = text_page("failed, see the log", HTTPStatus.INTERNAL_SERVER_ERROR)
        transport = self._transport
        if transport is not None:
            body = page.body if request.method != "HEAD" else ()
            transport.writelines([_response_head(page), *body])
            transport.close()  # once everything is written


def _parse(head: bytes) -> Request | None:
    """None: it is no HTTP request."""
    lines = head.decode("latin-1").split("\r\n")
    words = lines[0].split(" ")
    if len(words) != 3 or not words[0].isalpha() or not words[1].startswith("/") or not words[2].startswith("HTTP/1."):
        return None
    accept = encodings = ""
    for line in lines[1:]:
        name, colon, value = line.partition(":")
        if not colon or not name or name != name.strip():
            return None
        if name.lower() == "accept":
            accept = f"{accept},{value}" if accept else value
        elif name.lower() == "accept-encoding":
            encodings += f",{value}"
    return Request(words[0], words[1].partition("?")[0], accept, "gzip" in encodings)


def _response_head(page: Page) -> bytes:
    lines = [
        f"HTTP/1.1 {page.status.value} {page.status.phrase}",
        f"Content-Type: {page.content_type}",
        f"Content-Length: {sum(len(part) for part in page.body)}",
        "Cache-Control: no-store",
        "X-Content-Type-Options: nosniff",
        "Connection: close",
    ]
    if page.encoding is not None:
        lines.append(f"Content-Encoding: {page.encoding}")
    if page.status is HTTPStatus.METHOD_NOT_ALLOWED:
        lines.append(f"Allow: {', '.join(_METHODS)}")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()
