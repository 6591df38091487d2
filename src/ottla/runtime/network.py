"""`ports.Network` on TCP: listening, connecting, socket options. `file_sender` sends files."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from ottla.metrics import Counters
from ottla.runtime.congestion import UnpacedOnThisMachine, begin_unpaced, on_this_machine
from ottla.runtime.file_sender import SocketFileSender

BACKLOG = 1024
SEND_BUFFER_BYTES = 256 << 10
"""Unless `socket.send.buffer.bytes` is set. With Kafka's 100 KB the broker wakes up three times for each megabyte to a fast
consumer; a buffer that the system grows fills with megabytes that are no longer in the CPU cache when they are sent."""
LOCAL_SEND_BUFFER_BYTES = 512 << 10
"""The same, for files to a peer on this machine: without pacing (`congestion`) one wake-up less shows."""

_PROTOCOL_CALLS = (
    "buffer_updated", "connection_lost", "connection_made", "eof_received", "get_buffer", "pause_writing", "resume_writing"
)  # fmt: skip


class BufferedOnAsyncio(asyncio.BufferedProtocol):
    """A BufferedProtocol for asyncio's own loop, which checks the class where uvloop calls the methods."""

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
        """Without `receive_buffer_bytes`, or below 1, the system chooses and adapts it to the connection."""
        self._counters = counters
        self._local_send_buffer_bytes = LOCAL_SEND_BUFFER_BYTES if send_buffer_bytes is None else 0
        if send_buffer_bytes is None:
            send_buffer_bytes = SEND_BUFFER_BYTES
        self._backlog = backlog
        self._buffer_options = [
            (option, size)
            for option, size in ((socket.SO_SNDBUF, send_buffer_bytes), (socket.SO_RCVBUF, receive_buffer_bytes))
            if size is not None and size > 0
        ]

    async def listen(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> TcpListener:
        """Listen on one address; an empty host is every interface, IPv4 and IPv6 on one socket."""
        loop = asyncio.get_running_loop()
        if isinstance(loop, asyncio.BaseEventLoop):  # not uvloop
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
                # Accepted sockets inherit the options.
                sock.setsockopt(socket.SOL_SOCKET, option, size)
            if begin_unpaced(sock):
                paced = factory
                factory = lambda: UnpacedOnThisMachine(paced())  # noqa: E731
            server = await loop.create_server(factory, sock=sock, backlog=self._backlog)
        except BaseException:
            sock.close()
            raise
        return TcpListener(server, int(sock.getsockname()[1]))

    async def connect(self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int) -> asyncio.Transport:
        transport, _ = await asyncio.get_running_loop().create_connection(factory, host, port)
        return transport

    def file_sender(self, transport: asyncio.Transport) -> SocketFileSender:
        if self._local_send_buffer_bytes and on_this_machine(transport):
            with suppress(OSError):
                # Never smaller than before: a limit of the system has limited the listener's buffer too.
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._local_send_buffer_bytes)
        return SocketFileSender(asyncio.get_running_loop(), transport, self._counters)


class TcpListener:
    def __init__(self, server: asyncio.AbstractServer, port: int) -> None:
        self._server = server
        self.port = port

    def close(self) -> None:
        self._server.close()
