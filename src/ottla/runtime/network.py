"""TCP behind `ports.Network`: listening and connecting. Files go to a socket by `file_sender`.

Owns the sockets' options. Never looks at the bytes that pass.
"""

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
"""Unless `socket.send.buffer.bytes` is set. With Kafka's 100 KB a fast consumer has the broker wake up three times for a
megabyte, which measured a sixth more CPU; a buffer that grows as the system likes fills with megabytes that are cold when
they are sent (over loopback, half as much system time again)."""
LOCAL_SEND_BUFFER_BYTES = 512 << 10
"""The same, for files that go to a peer on this machine, once the first one goes. Without pacing (`congestion`) a wake-up less
shows: 0.13 s of CPU for a gigabyte instead of 0.16, and no less with a megabyte."""

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
        """Where no size for receiving is given the system chooses, and adapts it to the connection; so it does below 1."""
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
                # Never less than it has: if the system cuts this one, it has cut the listener's the same.
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._local_send_buffer_bytes)
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
