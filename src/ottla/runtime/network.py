"""TCP behind `ports.Network`: listening, connecting, and file ranges to a socket by `sendfile`.

Owns the sockets' options. Never looks at the bytes that pass.

uvloop has no `loop.sendfile`, so a `SocketFileSender` holds a duplicate of the transport's descriptor and calls `os.sendfile`
on it. Two rules keep that safe: it is used only while the transport has nothing of its own to write (bytes would overtake each
other), and the duplicate is closed with the connection (the peer would see no end otherwise).
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Any

from ottla.metrics import Counters
from ottla.ports import File, FileRange

BACKLOG = 1024
SENDFILE_TURN_BYTES = 4 << 20
"""After so much for one connection in one go the others get their turn, even if the peer still takes more."""

_PROTOCOL_CALLS = (
    "buffer_updated", "connection_lost", "connection_made", "eof_received", "get_buffer", "pause_writing", "resume_writing"
)  # fmt: skip


class BufferedOnAsyncio(asyncio.BufferedProtocol):
    """A protocol that is one for asyncio's own loop too: that asks for the class, uvloop for the methods."""

    def __init__(self, protocol: Any) -> None:
        for name in _PROTOCOL_CALLS:
            setattr(self, name, getattr(protocol, name))


def buffered_on_asyncio(protocol: asyncio.BaseProtocol) -> asyncio.BaseProtocol:
    if isinstance(protocol, (asyncio.Protocol, asyncio.BufferedProtocol)):
        return protocol
    return BufferedOnAsyncio(protocol)


class RealNetwork:
    def __init__(
        self,
        counters: Counters,
        *,
        backlog: int = BACKLOG,
        send_buffer_bytes: int | None = None,
        receive_buffer_bytes: int | None = None,
    ) -> None:
        """Buffer sizes that are not given are the system's own choice: it adapts them to the connection."""
        self._counters = counters
        self._backlog = backlog
        self._buffer_options = [
            (option, size)
            for option, size in ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes))
            if size is not None and size > 0
        ]

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> TcpListener:
        """Listen on one address; an empty host is every interface, IPv4 and IPv6 through one socket."""
        loop = asyncio.get_running_loop()
        if isinstance(loop, asyncio.BaseEventLoop):  # uvloop's is none
            given, factory = factory, lambda: buffered_on_asyncio(given())
        if host:
            infos = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
            family, _, _, _, address = infos[0]
            sock = socket.create_server((str(address[0]), int(address[1])), family=family, backlog=self._backlog)
        elif socket.has_dualstack_ipv6():
            sock = socket.create_server(("", port), family=socket.AF_INET6, backlog=self._backlog, dualstack_ipv6=True)
        else:
            sock = socket.create_server(("", port), backlog=self._backlog)
        try:
            sock.setblocking(False)
            for option, size in self._buffer_options:
                # Accepted sockets inherit them.
                sock.setsockopt(socket.SOL_SOCKET, option, size)
            server = await loop.create_server(factory, sock=sock, backlog=self._backlog)
        except BaseException:
            sock.close()
            raise
        return TcpListener(server, int(sock.getsockname()[1]))

    async def connect(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> asyncio.Transport:
        transport, _ = await asyncio.get_running_loop().create_connection(factory, host, port)
        return transport

    def file_sender(self, transport: asyncio.Transport) -> SocketFileSender:
        return SocketFileSender(asyncio.get_running_loop(), transport, self._counters)


class TcpListener:
    __slots__ = ("_port", "_server")

    def __init__(self, server: asyncio.AbstractServer, port: int) -> None:
        self._server = server
        self._port = port

    @property
    def port(self) -> int:
        return self._port

    def close(self) -> None:
        self._server.close()


class SocketFileSender:
    """File ranges on one connection, one at a time."""

    __slots__ = ("_count", "_counters", "_done", "_file", "_loop", "_position", "_socket_fd")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, counters: Counters) -> None:
        self._loop = loop
        self._counters = counters
        self._socket_fd = os.dup(transport.get_extra_info("socket").fileno())
        self._file: File | None = None
        """Held while it is sent: the last reference closes a file."""
        self._position = 0
        self._count = 0
        self._done: asyncio.Future[None] | None = None

    def send(self, part: FileRange) -> asyncio.Future[None] | None:
        assert self._done is None, "one range at a time"
        self._file = part.file
        self._position = part.position
        self._count = part.size
        if self._send_some():
            return None
        self._done = self._loop.create_future()
        self._loop.add_writer(self._socket_fd, self._on_writable)
        return self._done

    def close(self) -> None:
        if self._socket_fd < 0:
            return
        if self._done is not None:
            self._finish(ConnectionResetError("the connection closed in the middle of a file"))
        os.close(self._socket_fd)
        self._socket_fd = -1

    def _send_some(self) -> bool:
        """Send until all is sent (True), the socket is full, or the turn is over."""
        assert self._file is not None
        file_fd = self._file.fileno()
        turn = 0
        while self._count:
            try:
                sent = os.sendfile(self._socket_fd, file_fd, self._position, self._count)
            except BlockingIOError:
                break
            if not sent:
                raise OSError(f"file ends {self._count} bytes before the range that was promised")
            self._position += sent
            self._count -= sent
            turn += sent
            if turn >= SENDFILE_TURN_BYTES:
                break
        self._counters.add("sendfile_bytes", turn)
        if self._count:
            return False
        self._file = None
        return True

    def _on_writable(self) -> None:
        try:
            if self._send_some():
                self._finish(None)
        except OSError as error:
            self._finish(error)

    def _finish(self, error: OSError | None) -> None:
        done, self._done = self._done, None
        self._file = None
        self._loop.remove_writer(self._socket_fd)
        if done is None or done.done():
            return
        if error is None:
            done.set_result(None)
        else:
            done.set_exception(error)
