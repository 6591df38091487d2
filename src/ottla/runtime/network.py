"""`ports.Network` on TCP: listening, connecting, socket options. `file_sender` sends files.

TLS has a transport of its own (`tls_transport`), after `tls_handshakes`; the modules are loaded with the first TLS listener.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from ottla.metrics import Counters
from ottla.ports import FileSender, ServerTls
from ottla.runtime.congestion import UnpacedOnThisMachine, begin_unpaced, on_this_machine
from ottla.runtime.file_sender import SocketFileSender

if TYPE_CHECKING:
    from ottla.runtime.tls_handshakes import TlsListener
    from ottla.runtime.tls_transport import ChunkPool, TlsTransport

BACKLOG = 1024
SEND_BUFFER_BYTES = 256 << 10
"""Unless `socket.send.buffer.bytes` is set. With Kafka's 100 KB the broker wakes up three times for each megabyte to a fast
consumer; a buffer that the system grows fills with megabytes that are no longer in the CPU cache when they are sent."""
LOCAL_SEND_BUFFER_BYTES = 512 << 10
"""The same, for files to a peer on this machine: without pacing (`congestion`) one wake-up less shows."""
ENCRYPTING_THREADS = 2
"""For large replies over TLS."""

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

        self._chunks: ChunkPool | None = None
        self._encrypting: ThreadPoolExecutor | None = None

    async def listen(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, tls: ServerTls | None = None
    ) -> TcpListener | TlsListener:
        """Listen on one address; an empty host is every interface, IPv4 and IPv6 on one socket."""
        loop = asyncio.get_running_loop()
        if isinstance(loop, asyncio.BaseEventLoop) and tls is None:  # not uvloop
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
            unpaced = begin_unpaced(sock)
            if tls is not None:
                return self._listen_tls(factory, sock, tls, unpaced=unpaced)
            if unpaced:
                paced = factory
                factory = lambda: UnpacedOnThisMachine(paced())  # noqa: E731
            listener = TcpListener(factory, sock, self._backlog)
            await listener.start()
        except BaseException:
            sock.close()
            raise
        return listener

    async def connect(
        self, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int, tls: ssl.SSLContext | None = None
    ) -> asyncio.Transport:
        loop = asyncio.get_running_loop()
        if tls is None:
            transport, _ = await loop.create_connection(factory, host, port)
            return transport
        return await self._connect_tls(loop, factory, host, port, tls)

    def file_sender(self, transport: asyncio.Transport) -> FileSender:
        if self._local_send_buffer_bytes and on_this_machine(transport):
            with suppress(OSError):
                # Never smaller than before: a limit of the system has limited the listener's buffer too.
                transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._local_send_buffer_bytes)
        if transport.get_extra_info("ssl_object") is not None:
            from ottla.runtime.tls_transport import TlsFileSender

            return TlsFileSender(cast("TlsTransport", transport))
        return SocketFileSender(asyncio.get_running_loop(), transport, self._counters)

    # TLS

    def _listen_tls(
        self, factory: Callable[[], asyncio.BaseProtocol], sock: socket.socket, tls: ServerTls, *, unpaced: bool
    ) -> TlsListener:
        from ottla.runtime.tls_handshakes import TlsListener, reason_of

        def ready(secured: ssl.SSLSocket, address: Any) -> None:
            def failed(error: ssl.SSLError) -> None:
                tls.failed(str(address[0]), int(address[1]), reason_of(error))

            self._tls_transport(loop, secured, address, failed).begin(factory())

        loop = asyncio.get_running_loop()
        return TlsListener(loop, sock, tls, ready, unpaced=unpaced)

    async def _connect_tls(
        self,
        loop: asyncio.AbstractEventLoop,
        factory: Callable[[], asyncio.BaseProtocol],
        host: str,
        port: int,
        tls: ssl.SSLContext,
    ) -> asyncio.Transport:
        from ottla.runtime.tls_handshakes import Handshake

        sock = await _connected(loop, host, port)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            secured = tls.wrap_socket(sock, server_hostname=host, do_handshake_on_connect=False)
        except BaseException:
            sock.close()
            raise
        done: asyncio.Future[None] = loop.create_future()

        def ended(error: OSError | None) -> None:
            if done.done():
                return
            if error is None:
                done.set_result(None)
            else:
                done.set_exception(error)

        handshake = Handshake(loop, secured, ended)
        try:
            handshake.step()
            await done
        except BaseException:
            handshake.close()
            raise
        transport = self._tls_transport(loop, secured, secured.getpeername(), None)
        transport.begin(factory())
        return cast(asyncio.Transport, transport)

    def _tls_transport(
        self,
        loop: asyncio.AbstractEventLoop,
        secured: ssl.SSLSocket,
        address: Any,
        failed: Callable[[ssl.SSLError], None] | None,
    ) -> TlsTransport:
        from ottla.runtime.tls_transport import ChunkPool, TlsTransport

        if self._chunks is None:
            self._chunks = ChunkPool()
        return TlsTransport(loop, secured, address, self._chunks, self._executor, self._counters, failed)

    def _executor(self) -> Executor:
        if self._encrypting is None:
            self._encrypting = ThreadPoolExecutor(ENCRYPTING_THREADS, thread_name_prefix="ottla-tls")
        return self._encrypting


async def _connected(loop: asyncio.AbstractEventLoop, host: str, port: int) -> socket.socket:
    """A socket that is connected to the first address of a host that answers."""
    failure: OSError | None = None
    for family, kind, protocol, _, address in await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setblocking(False)
            await loop.sock_connect(sock, address)
            return sock
        except OSError as error:
            sock.close()
            failure = error
        except BaseException:
            sock.close()
            raise
    raise failure or OSError(f"{host} has no address")


class TcpListener:
    """`ports.Listener`. A server cannot be paused: it is closed, while a duplicate of its socket goes on listening."""

    def __init__(self, factory: Callable[[], asyncio.BaseProtocol], sock: socket.socket, backlog: int) -> None:
        self._factory = factory
        self._socket = sock
        self._backlog = backlog
        self._server: asyncio.AbstractServer | None = None
        self._starting: asyncio.Task[None] | None = None
        self._paused = False
        self.port = int(sock.getsockname()[1])

    async def start(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._factory, sock=self._socket, backlog=self._backlog)

    def pause(self) -> None:
        if self._paused or self._server is None:
            return
        try:
            waiting = self._socket.dup()
        except OSError:
            return  # without a free descriptor the server closes what it accepts
        self._paused = True
        self._server.close()
        self._server, self._socket = None, waiting

    def resume(self) -> None:
        if self._paused:
            self._paused = False
            self._starting = asyncio.get_running_loop().create_task(self.start())

    def close(self) -> None:
        if self._starting is not None:
            self._starting.cancel()
        if self._server is not None:
            self._server.close()
        else:
            self._socket.close()
