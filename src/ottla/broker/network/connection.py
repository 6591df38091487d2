"""One client connection: frames in, replies out, in order.

Owns the bytes of one connection between the socket and `dispatch`. Never looks inside a request.

1. One request at a time: the next frame is not read before the reply to this one is on its way (W01). So a connection holds at
   most one request, one reply (or a few short ones), and the bytes of one read that arrived early.
2. A length is checked against `socket.request.max.bytes` before it is used, and memory is taken as bytes arrive.
3. Buffers of a reply are written to the transport. File ranges are sent by the network's file sender, once the transport's
   buffer is empty. A short range is read and written with the buffers, which costs less. Short replies to requests that came in
   one read are written together.
4. A peer that sends malformed bytes has its own connection closed, and nothing else happens.

Reading is paused only if bytes arrive while a request is being answered. A waiting fetch therefore costs no system calls, and the
connection sees when the peer closes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.broker.network.peer import Peer
from ottla.broker.network.request_memory import HEAD_ROOM, LARGE_BYTES, PEEK_BYTES, RequestMemory
from ottla.errors import MalformedInput
from ottla.ports import FileRange, FileSender, Part
from ottla.security.principal import Session, java_address
from ottla.types import Buffer

if TYPE_CHECKING:
    from ottla.broker.network.dispatch import HeaderCache, PendingReply
    from ottla.broker.network.measuring import ConnectionTraffic, RequestMeasure
    from ottla.broker.network.socket_server import ListenerUse, SocketServer

COPY_BYTES_MAX = 32 << 10
"""File ranges of a reply up to this size are read rather than sent by `sendfile`, which takes more system calls. (At 16 KB, the
batch size of Java's producer, reading took a sixth less CPU; at 32 and 64 KB the same, at 128 KB more.)"""

GATHERED_MAX = 16
"""Replies that are written together. With more the peer would wait too long for the first."""
GATHER_BYTES_MAX = 4 << 10
"""Larger replies are written at once."""

REFUSAL_S = 5.0
"""How long the answer to a failed login may take to leave."""

_read_size: Final = Struct(">i").unpack_from


class Connection:
    """An asyncio.BufferedProtocol without the base class: a compiled class cannot inherit from an interpreted one."""

    def __init__(self, server: SocketServer, listener: ListenerUse) -> None:
        self._server = server
        self._loop = server.loop
        self._memory: RequestMemory = server.memory
        self.dispatch = server.dispatch
        """Replaced while the client is not authenticated, see `ListenerUse.login`."""
        self._request_bytes_min = 1
        self._request_bytes_max = server.request_bytes_max
        self.listener = listener
        self.listener_name = listener.name
        self.client_host = ""
        self.client_port = 0
        self.session = Session("", listener.name, listener.security_protocol)
        self.number = 0
        """Counts the connections of this broker from 1 on."""
        self.last_used = 0.0
        self.login_since = 0.0
        """When the client of a SASL listener connected; 0: it is authenticated, or there is no login."""
        self.header_cache: HeaderCache | None = None
        """Used by `dispatch`."""
        self.since = 0.0
        """When it was accepted."""
        self.traffic: ConnectionTraffic | None = None
        """Only with metrics, from the first request on."""
        self.sending: RequestMeasure | None = None
        """Told when the reply of files under way has left."""
        self.transport: asyncio.Transport | None = None
        self._sender: FileSender | None = None
        self._head = b""
        """The first bytes of an incomplete length prefix."""
        self._frame: memoryview | None = None
        """The buffer of an incomplete frame: `_filled` of `_frame_size` bytes are in it."""
        self._frame_size = 0
        self._filled = 0
        self._large = False
        """The last frame was large, so the next one probably is."""
        self._ahead: bytearray | None = None
        """Bytes received behind the request that is being answered."""
        self._answering = False
        """A request is being handled, or its reply is not yet written to the socket."""
        self._pending: PendingReply | None = None
        """The reply, while its handler waits."""
        self._gathered: list[Buffer] = []
        """Replies to requests of the current read, written together at its end."""
        self._more = False
        """More bytes of the current read follow the request that is being handled."""
        self._outgoing: deque[Part] = deque()
        self._sending_file = False
        self._writable = True
        self._paused_reading = False
        self._waits_for_memory = False
        self._unmute: asyncio.TimerHandle | None = None
        """Ends the mute; None: the connection is not muted."""
        self._closed = False
        self._refusal: asyncio.TimerHandle | None = None
        """The answer to a failed login, which is sent later."""

    # Called by the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are asyncio.Transport in all but name.
        self.transport = transport = cast(asyncio.Transport, transport)
        # With a limit of 0, resume_writing says that the transport's buffer is empty: the moment a file may follow.
        transport.set_write_buffer_limits(high=0)
        peer = transport.get_extra_info("peername")
        if isinstance(peer, tuple):
            self.client_port = int(peer[1])
        host = str(peer[0]) if isinstance(peer, tuple) else ""
        self.client_host = host[7:] if host.startswith("::ffff:") else host
        self.session.client_host = java_address(self.client_host)
        self.session.client_port = self.client_port
        if self.listener.login is not None:
            self.login_since = self._loop.time()
            self.dispatch = self.listener.login(self)
        if self.listener.principal_of is not None:
            try:
                self.session.principal = self.listener.principal_of(transport.get_extra_info("peercert_der"))
            except ValueError as error:
                self._server.tls_failed(self.peer(), str(error))
                self._closed = True
                transport.abort()
                return
        if not self._server.admit(self):
            self._closed = True
            transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed = True
        if self._sender is not None:
            self._sender.close()
        if self._pending is not None:
            self._pending.future.cancel()
            self._pending = None
        if self._waits_for_memory:
            self._memory.forget(self._memory_available)
        if self._refusal is not None:
            self._refusal.cancel()
            self._refusal = None
        if self._unmute is not None:
            self._unmute.cancel()
            self._unmute = None
        self.header_cache = None  # its observer names this connection
        self.sending = None
        self._drop_input()
        self._outgoing.clear()
        self._server.forget(self)

    def eof_received(self) -> bool | None:
        return None

    def get_buffer(self, sizehint: int) -> memoryview:
        frame = self._frame
        if frame is None or self._answering:
            return self._memory.shared_peek if self._large else self._memory.shared_tail
        # With the start of the next frame, if the buffer has room: that saves a read.
        return frame[self._filled : self._frame_size + PEEK_BYTES]

    def buffer_updated(self, nbytes: int) -> None:
        if self._closed:
            return
        self._server.used(self)
        memory = self._memory
        if self._answering:
            self._keep_ahead(memory.shared[HEAD_ROOM : HEAD_ROOM + nbytes])
            return
        frame = self._frame
        if frame is None:
            start = HEAD_ROOM
            if self._head:
                start -= len(self._head)
                memory.shared[start:HEAD_ROOM] = self._head
                self._head = b""
            self._take(memory.shared, start, HEAD_ROOM + nbytes)
            return
        self._filled += nbytes
        size = self._frame_size
        if self._filled >= size:
            ahead = bytes(frame[size : self._filled])
            self._frame = None
            self._request(frame[:size])
            memory.release_buffer(frame, self)
            if ahead and not self._closed:
                if self._answering:
                    self._keep_ahead(memoryview(ahead))
                else:
                    self._take(memoryview(ahead), 0, len(ahead))
        elif self._filled == len(frame):
            self._continue_frame(frame)

    def missing_bytes(self) -> int:
        """The number of bytes that the incomplete frame lacks. 0 if there is none, or if reading has stopped until an answer."""
        return self._frame_size - self._filled if self._frame is not None and not self._answering else 0

    def pause_writing(self) -> None:
        self._writable = False

    def resume_writing(self) -> None:
        self._writable = True
        if self._outgoing or self._answering:
            self._send()

    # For the server and for handlers

    @property
    def waits_in(self) -> str | None:
        """The name of the API whose handler waits; None: no handler does."""
        return self._pending.api_name if self._pending is not None else None

    @property
    def waits_for(self) -> asyncio.Future[Any] | None:
        """What that handler waits for."""
        return self._pending.future if self._pending is not None else None

    @property
    def idle(self) -> bool:
        """Whether no handler is working on a request of this peer."""
        return self._pending is None

    @property
    def muted(self) -> bool:
        return self._unmute is not None

    @property
    def holds_memory(self) -> bool:
        return self._frame is not None

    def hold(self) -> None:
        """Handle no request until `begin`. Bytes that arrive are kept."""
        self._answering = True

    def begin(self) -> None:
        self._answering = False
        self._go_on()

    def authenticated(self, session: Session) -> None:
        """Serve the requests that follow for the principal of `session`."""
        self.session = session
        self.login_since = 0.0
        self.header_cache = None

    def limit_frames(self, largest: int | None, smallest: int = 1) -> None:
        """Accept frames of these sizes, in bytes; None: those of requests."""
        self._request_bytes_min = smallest
        self._request_bytes_max = self._server.request_bytes_max if largest is None else largest

    def refuse(self, reply: list[Part] | None, reason: str, delay_s: float) -> None:
        """The login failed: read nothing more, send the reply after the delay, and close."""
        self._server.login_failed(self, reason)
        self._answering = True
        self._pause_reading()
        data = b"".join([part for part in reply if not isinstance(part, FileRange)]) if reply is not None else b""
        self._refusal = self._loop.call_later(delay_s, self._close_refused, data)

    def _close_refused(self, reply: bytes) -> None:
        transport = self.transport
        if self._closed or transport is None:
            return
        self._closed = True
        if reply and self._writable:
            transport.write(reply)
            transport.close()
            # If the peer does not take the reply.
            self._refusal = self._loop.call_later(REFUSAL_S, transport.abort)
        else:
            transport.abort()

    def mute(self, duration_ms: int) -> None:
        """Read nothing and handle no further request for so long. The reply to the present one goes out at once (KIP-219)."""
        if self._closed:
            return
        if self._unmute is not None:
            self._unmute.cancel()
        self._unmute = self._loop.call_later(duration_ms / 1000, self._end_mute)
        self._pause_reading()

    def _end_mute(self) -> None:
        self._unmute = None
        if not self._closed:
            self._answering = not self._writable or self._pending is not None or self._sending_file or bool(self._outgoing)
            self._go_on()

    def close(self) -> None:
        """Close now, without sending what is queued. Gathered replies are written first, as if each had been written at once."""
        if not self._closed:
            if self._gathered:
                self._write_gathered()
            self._closed = True
            if self.transport is not None:
                self.transport.abort()

    # Frames

    def _take(self, view: memoryview, position: int, end: int) -> None:
        """Handle the whole frames in `view[position:end]` and keep the rest."""
        size = 0
        while end - position >= 4:
            size = _size_at(view, position)
            if size < self._request_bytes_min or size > self._request_bytes_max:
                self._wrong_size(size)
                return
            after = position + 4 + size
            if after > end:
                break
            self._large = False
            self._more = after < end
            self._request(view[position + 4 : after])
            position = after
            if self._closed:
                return
            if self._answering:
                break
        self._more = False
        if self._gathered:
            self._write_gathered()
        if position == end:
            return
        if self._answering:
            self._keep_ahead(view[position:end])
        elif end - position < 4:
            self._head = bytes(view[position:end])
        else:
            self._large = size >= LARGE_BYTES
            self._begin_frame(view[position + 4 : end], size)

    def _wrong_size(self, size: int) -> None:
        largest = self._request_bytes_max
        name = "socket.request.max.bytes" if largest == self._server.request_bytes_max else "sasl.server.max.receive.size"
        reason = f"a request of {size} bytes; {self._request_bytes_min} to {largest} are allowed ({name})"
        self._malformed(reason + _other_protocol(size))

    def _begin_frame(self, have: memoryview, size: int) -> None:
        count = len(have)
        more = self._memory.may_take(self)
        frame = self._memory.take(size, count, more)
        frame[:count] = have
        self._frame = frame
        self._frame_size = size
        self._filled = count
        if not more and count == len(frame):
            self._wait_for_memory()

    def _continue_frame(self, frame: memoryview) -> None:
        if self._memory.may_take(self):
            self._frame = self._memory.grow(frame, self._frame_size)
        else:
            self._wait_for_memory()

    def _wait_for_memory(self) -> None:
        self._waits_for_memory = True
        self._pause_reading()
        self._memory.when_available(self._memory_available)

    def _memory_available(self) -> None:
        self._waits_for_memory = False
        if self._closed or self._frame is None:
            return
        self._continue_frame(self._frame)
        self._resume_reading()

    def _keep_ahead(self, data: memoryview) -> None:
        self._memory.hold(len(data))
        if self._ahead is None:
            self._ahead = bytearray(data)
        else:
            self._ahead += data
        self._pause_reading()

    def _drop_input(self) -> None:
        frame, self._frame = self._frame, None
        ahead, self._ahead = self._ahead, None
        if frame is not None:
            self._memory.release_buffer(frame, self)
        if ahead is not None:
            self._memory.release(len(ahead))

    def _pause_reading(self) -> None:
        if not self._paused_reading and self.transport is not None:
            self._paused_reading = True
            self.transport.pause_reading()

    def _resume_reading(self) -> None:
        if self._paused_reading and self.transport is not None and not self._waits_for_memory and self._unmute is None:
            self._paused_reading = False
            self.transport.resume_reading()

    def look_for_end(self) -> None:
        """Read while a request is being answered: only a read shows whether the peer has closed. Bytes that arrive are kept."""
        self._resume_reading()

    def peer(self) -> Peer:
        """For log lines."""
        header = self.header_cache
        client_id = header.context.client_id if header is not None else None
        return Peer(self.client_host, self.client_port, self.listener_name, client_id)

    def _malformed(self, reason: str) -> None:
        self._server.malformed(self, reason)
        self.close()

    # Requests and replies

    def _request(self, frame: memoryview) -> None:
        """Dispatch one request. Afterwards `_answering` says whether it is still being answered."""
        try:
            reply = self.dispatch(frame, self)
        except MalformedInput as error:
            self._malformed(str(error))
            return
        if reply is None:
            if self._unmute is not None:
                self._answering = True
            return
        self._answering = True
        if isinstance(reply, list):
            self._reply(reply)
            if self._unmute is not None:
                self._answering = True
        else:
            self._pending = reply
            reply.future.add_done_callback(self._answered)

    def _answered(self, done: asyncio.Future[object]) -> None:
        pending, self._pending = self._pending, None
        if self._closed or pending is None or done.cancelled():
            self.close()
            return
        try:
            reply = pending.parts()
        except MalformedInput as error:
            self._malformed(str(error))
            return
        self._server.used(self)
        if reply is not None:
            self._reply(reply)
        else:
            self._answering = not self._writable
        self._go_on()

    def _reply(self, parts: list[Part]) -> None:
        transport = self.transport
        assert transport is not None
        if len(parts) == 1 and self._writable:
            part = parts[0]
            if isinstance(part, bytes):
                if self._more and len(part) <= GATHER_BYTES_MAX and len(self._gathered) < GATHERED_MAX:
                    self._gathered.append(part)
                    self._answering = False
                    return
                if self._gathered:
                    self._gathered.append(part)
                    self._answering = False
                    self._write_gathered()
                    return
                transport.write(part)
                self._answering = not self._writable
                return
        if self._gathered:
            self._write_gathered()
        file_bytes = 0
        for part in parts:
            if isinstance(part, FileRange):
                file_bytes += part.size
        if 0 < file_bytes <= COPY_BYTES_MAX and self._writable and not self._outgoing:
            self._reply_with_copies(transport, parts)
            return
        self._outgoing.extend(parts)
        if file_bytes and self._sender is None:
            self._sender = self._server.file_sender(transport)
        self._send_parts()

    def _write_gathered(self) -> None:
        gathered, self._gathered = self._gathered, []
        assert self.transport is not None
        self.transport.write(gathered[0] if len(gathered) == 1 else b"".join(gathered))
        if not self._writable:
            self._answering = True

    def _reply_with_copies(self, transport: asyncio.Transport, parts: list[Part]) -> None:
        """Read short ranges and write all parts together: one system call and a small copy instead of four calls."""
        buffers: list[Buffer] = []
        for part in parts:
            if isinstance(part, FileRange):
                try:
                    data = part.file.read(part.position, part.size)
                    if len(data) < part.size:
                        raise OSError(f"{part.file.path} ends {part.size - len(data)} bytes before the range of the response")
                except OSError as error:
                    self._broken_reply(error)
                    return
                buffers.append(data)
            else:
                buffers.append(part)
        transport.write(b"".join(buffers))
        self._answering = not self._writable

    def _send(self) -> None:
        """The socket is writable again: continue the reply, then the bytes that arrived meanwhile."""
        self._send_parts()
        self._go_on()

    def _send_parts(self) -> None:
        transport = self.transport
        assert transport is not None
        outgoing = self._outgoing
        while outgoing and not self._closed:
            if self._sending_file or not self._writable:
                return
            buffers: list[Buffer] = []
            found: FileRange | None = None
            while outgoing and found is None:
                part = outgoing.popleft()
                if not isinstance(part, FileRange):
                    buffers.append(part)
                elif part.size:
                    found = part
            if found is None:
                transport.writelines(buffers)
                break
            head = buffers[0] if len(buffers) == 1 else b"".join(buffers)
            assert self._sender is not None
            try:
                all_sent = self._sender.send(head, found, self._file_sent)
            except OSError as error:
                self._broken_reply(error)
                return
            if not all_sent:
                self._sending_file = True
                return
        self._answering = not self._writable or self._pending is not None
        if self.sending is not None:
            self.sending.sent()
            self.sending = None

    def _file_sent(self, error: OSError | None) -> None:
        self._sending_file = False
        if self._closed:
            return
        if error is not None:
            self._broken_reply(error)
            return
        self._server.used(self)
        self._send()

    def _broken_reply(self, error: BaseException) -> None:
        """Close the connection: the peer cannot be told otherwise that a reply in progress is incomplete."""
        if not isinstance(error, ConnectionError):
            self._server.failed(self, error)
        self.close()

    def _go_on(self) -> None:
        """Once the reply is written, and the connection not muted, handle the bytes that arrived early."""
        if self._unmute is not None:
            self._answering = True
        if self._answering or self._closed:
            return
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            self._memory.release(len(ahead))
            self._take(memoryview(ahead), 0, len(ahead))
        if not self._answering and not self._closed:
            self._resume_reading()


def _other_protocol(size: int) -> str:
    """What a peer speaks whose first bytes are no size."""
    start = size.to_bytes(4, "big", signed=True)
    if start[:2] == b"\x16\x03":
        return ". It begins a TLS handshake: does the client use SSL, and this listener not?"
    if start in (b"GET ", b"POST", b"HEAD", b"PUT ", b"PRI "):
        return ". It is an HTTP request: this port speaks Kafka's protocol"
    return ""


def _size_at(view: memoryview, position: int) -> int:
    """The length prefix of a frame."""
    size: int = _read_size(view, position)[0]
    return size
