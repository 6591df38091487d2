"""A TLS connection as an asyncio transport: an `ssl.SSLSocket` on a non-blocking descriptor, watched by the loop (TL06).

Owns the socket after the handshake. Bytes are decrypted into the protocol's own buffer, and encrypted from the bytes of a reply
or from a piece of a file. Nothing is copied through a memory BIO, as asyncio's and uvloop's TLS do.

1. OpenSSL must be given the same bytes again after "want write". `_chunk` holds them until they are written.
2. Everything is written in order: replies and file ranges are one queue.
3. Large replies are encrypted by a worker thread: OpenSSL releases the interpreter. An SSL object is not for two threads, so
   until the worker has finished (`_busy`) the loop neither reads nor writes here.
4. `connection_lost` is called once, from the loop, and never inside of a call of the protocol.
5. Bytes inside OpenSSL, decrypted or read ahead, raise no event of the socket: after a pause nobody waits for one.

Compiled by mypyc: every request over TLS passes here.
"""

from __future__ import annotations

import asyncio
import select
import socket
import ssl
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from os import preadv
from typing import Any, Final

from ottla.metrics import Counters
from ottla.ports import File, FileRange
from ottla.runtime.tls_read_ahead import read_ahead_of
from ottla.types import Buffer

RECORD_BYTES: Final = 16384
"""The most that one read returns: a TLS record."""
TURN_READ_BYTES: Final = 256 << 10
"""Bytes of one connection that are read before other connections get their turn."""
RECORD_COST_BYTES: Final = 1 << 10
"""A smaller record counts as so many bytes of a turn."""
CHUNK_BYTES: Final = 128 << 10
"""File bytes that are encrypted with one call."""
CHUNKS_HELD_MAX: Final = 256
"""Chunks that slow readers may hold, in all connections. Above it a chunk is dropped and read from its file again."""
LOW_WATER_BYTES: Final = 64 << 10
"""While a large frame is incomplete, its bytes are read when there are so many of them. librdkafka writes two TLS records for
each message of a kilobyte, and the loop would wake up for each record. So long OpenSSL also reads ahead."""
TURN_BYTES: Final = 1 << 20
"""Bytes that one connection encrypts in the loop before other connections get their turn."""
BESIDE_BYTES: Final = 1 << 20
"""From this size on, a worker thread encrypts."""
BESIDE_WAIT_MS: Final = 2
"""How long a worker waits for a socket whose buffer is full, before it leaves that to the loop."""


def _no_read_ahead(on: int) -> None:
    """Where this Python has none."""


class ChunkPool:
    """Buffers for pieces of files, used again: fresh memory of this size costs more than its encryption."""

    def __init__(self) -> None:
        self._free: list[bytearray] = []
        self.held = 0

    def take(self) -> bytearray:
        self.held += 1
        return self._free.pop() if self._free else bytearray(CHUNK_BYTES)

    def release(self, chunk: bytearray) -> None:
        self.held -= 1
        if len(self._free) < 8:
            self._free.append(chunk)


class TlsTransport:
    """An asyncio.Transport without the base class: a compiled class cannot inherit from an interpreted one."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        sock: ssl.SSLSocket,
        peername: Any,
        pool: ChunkPool,
        executor: Callable[[], Executor],
        counters: Counters,
        failed: Callable[[ssl.SSLError], None] | None = None,
    ) -> None:
        """`failed` is called if the peer breaks the rules of TLS."""
        self._loop = loop
        self._socket = sock
        self._fd: int = sock.fileno()
        # What `sock.read`, `write` and `pending` call. Around it each of them has two or three Python functions, which cost more
        # than the decryption of a small record.
        inside: Any = getattr(sock, "_sslobj", None) or sock
        self._decrypt: Callable[..., Any] = inside.read
        self._encrypt: Callable[[Buffer], int] = inside.write
        self._pending: Callable[[], int] = inside.pending
        self._peername = peername
        self._pool = pool
        self._executor = executor
        self._counters = counters
        self._failed = failed
        self._protocol: Any = None
        self._buffered = False
        """The protocol has a buffer of its own."""
        self._tells_missing = False
        """The protocol tells how many bytes of its frame are missing."""
        self._low_water = 1
        """SO_RCVLOWAT of the socket."""
        self._ahead = False
        """OpenSSL may hold whole records that neither the socket nor `pending` tells of."""
        self._set_read_ahead: Callable[[int], object] | None = None
        self._reading = True
        """The protocol wants to read."""
        self._watches_reads = False
        self._watches_writes = False
        self._read_waits_for_write = False
        self._outgoing: deque[Buffer | FileRange] = deque()
        self._outgoing_bytes = 0
        """With the bytes of `_chunk`."""
        self._late: list[Buffer] = []
        """Written while a worker has the queue."""
        self._chunk: Buffer | None = None
        """Handed to OpenSSL, which wants the same bytes again."""
        self._chunk_buffer: bytearray | None = None
        """The buffer of the pool that `_chunk` is in."""
        self._chunk_head: Buffer = b""
        self._chunk_file: File | None = None
        self._chunk_position = 0
        self._chunk_size = 0
        self._high = 64 << 10
        self._low = 16 << 10
        self._paused_writing = False
        self._file_sent: Callable[[OSError | None], None] | None = None
        self._busy = False
        """A worker thread uses the SSL object."""
        self._closing = False
        """Nothing is read or accepted any more; what is queued is still written, unless `_aborted`."""
        self._aborted = False
        self._lost = False
        self._error: Exception | None = None

    def begin(self, protocol: Any) -> None:
        """After the handshake."""
        self.set_protocol(protocol)
        protocol.connection_made(self)
        if not self._lost and not self._closing and self._reading:
            self._watch_reads()

    # asyncio.BaseTransport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        if name == "peername":
            return self._peername
        if name in ("socket", "ssl_object"):
            return self._socket
        if name == "sockname":
            return self._socket.getsockname()
        if name == "peercert_der":
            return self._socket.getpeercert(binary_form=True)
        if name == "cipher":
            return self._socket.cipher()
        return default

    def set_protocol(self, protocol: Any) -> None:
        self._protocol = protocol
        self._buffered = hasattr(protocol, "get_buffer")
        self._tells_missing = hasattr(protocol, "missing_bytes")

    def get_protocol(self) -> Any:
        return self._protocol

    def is_closing(self) -> bool:
        return self._closing or self._lost

    def close(self) -> None:
        """Write what is queued, then close."""
        if self._closing or self._lost:
            return
        self._closing = True
        self._stop_reading()
        if not self._busy and not self._outgoing_bytes:
            self._lose(None)

    def abort(self) -> None:
        """Close now."""
        self._fail(None)

    # asyncio.ReadTransport

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        # The socket is watched until it has an event: a short pause costs no system call.
        self._reading = False

    def resume_reading(self) -> None:
        if self._reading or self._closing or self._lost:
            return
        self._reading = True
        if self._busy:
            return
        self._watch_reads()
        if self._ahead or self._pending():
            self._loop.call_soon(self._on_readable)

    # asyncio.WriteTransport

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = 64 << 10 if high is None else high
        self._low = self._high // 4 if low is None else low

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def get_write_buffer_size(self) -> int:
        return self._outgoing_bytes

    def can_write_eof(self) -> bool:
        return False

    def write(self, data: Buffer) -> None:
        size = len(data)
        if self._closing or self._lost or not size:
            return
        if self._busy:
            self._late.append(data if isinstance(data, bytes) else bytes(data))
            self._pause_writing()
            return
        if not self._outgoing_bytes and size <= TURN_BYTES:
            try:
                self._encrypt(data)
                return
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                self._chunk = data if isinstance(data, bytes) else bytes(data)
            except OSError as error:
                self._fail(error)
                return
        else:
            self._outgoing.append(data if isinstance(data, bytes) else bytes(data))
        self._outgoing_bytes += size
        if self._outgoing_bytes > self._high:
            self._pause_writing()
        self._go_on_writing()

    def writelines(self, buffers: list[Buffer]) -> None:
        # One record instead of several.
        self.write(buffers[0] if len(buffers) == 1 else b"".join(buffers))

    def send_file(self, head: Buffer, part: FileRange, sent: Callable[[OSError | None], None]) -> bool:
        """Bytes and a file range, while nothing else is queued. True: everything is sent. False: `sent` is called when it is."""
        assert self._file_sent is None, "one range at a time"
        assert not self._outgoing_bytes
        if self._closing or self._lost:
            raise ConnectionResetError("the connection is closed")
        if len(head):
            self._outgoing.append(head)
        self._outgoing.append(part)
        self._outgoing_bytes = len(head) + part.size
        if self._outgoing_bytes < BESIDE_BYTES:
            try:
                if self._write_some():
                    return True
            except OSError:
                self._drop_queue()
                raise
        self._file_sent = sent
        self._go_on_writing()
        return False

    # Reading

    def _on_readable(self) -> None:
        if self._lost or self._busy or not self._reading or self._closing:
            self._unwatch_reads()
            return
        try:
            self._read()
        except OSError as error:
            self._fail(error)
        except Exception as error:
            # A bug of the protocol: the event would come again and again.
            self._loop.call_exception_handler({"message": "Error in the protocol of a TLS connection", "exception": error})
            self._fail(error)

    def _read(self) -> None:
        protocol = self._protocol
        missing: int = protocol.missing_bytes() if self._tells_missing else 0
        left = TURN_READ_BYTES
        while True:
            blocked, drained, ended, count = False, False, False, 0
            try:
                if self._buffered:
                    buffer: memoryview = protocol.get_buffer(RECORD_BYTES)
                    room = len(buffer)
                    # Several records at once, while the frame is incomplete.
                    while True:
                        read: int = self._decrypt(room - count, buffer[count:] if count else buffer)
                        if not read:
                            ended = True
                            break
                        count += read
                        left -= read if read > RECORD_COST_BYTES else RECORD_COST_BYTES
                        if count >= missing or count >= room or left <= 0:
                            break
                else:
                    data: bytes = self._decrypt(RECORD_BYTES)
                    count = len(data)
                    left -= RECORD_BYTES
                    ended = not count
            except ssl.SSLWantReadError:
                blocked = drained = True
            except ssl.SSLWantWriteError:
                # A key update of TLS 1.3 must be answered first.
                blocked = True
                self._read_waits_for_write = True
                self._watch_writes()
            except ssl.SSLEOFError:
                ended = True  # without close_notify
            if count:
                if self._buffered:
                    protocol.buffer_updated(count)
                else:
                    protocol.data_received(data)
                if self._tells_missing:
                    missing = protocol.missing_bytes()
            if ended and not self._lost and not self._closing:
                protocol.eof_received()
                self.close()
                return
            if blocked or not self._reading or self._busy or self._lost or self._closing:
                break
            if not missing and count < RECORD_BYTES and not self._ahead and not self._pending():
                break  # if there is more, the loop says so: asking costs an exception
            if left <= 0:
                if missing or self._ahead or self._pending():
                    self._loop.call_soon(self._on_readable)
                break
        if not self._lost:
            self._await_bytes(missing, drained)

    def _await_bytes(self, missing: int, drained: bool) -> None:
        """Read few large pieces while many bytes of a frame are missing. `drained`: OpenSSL has no whole record left."""
        # OpenSSL may have taken a record but for its last byte: so much less is to come through the socket.
        large = missing >= LOW_WATER_BYTES + RECORD_BYTES
        wanted = LOW_WATER_BYTES if large else 1
        if wanted != self._low_water:
            self._low_water = wanted
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
        if large != self._ahead and (large or drained):
            if self._set_read_ahead is None:
                self._set_read_ahead = read_ahead_of(self._socket) or _no_read_ahead
            self._set_read_ahead(1 if large else 0)
            self._ahead = large

    def _watch_reads(self) -> None:
        if not self._watches_reads:
            self._watches_reads = True
            self._loop.add_reader(self._fd, self._on_readable)

    def _unwatch_reads(self) -> None:
        if self._watches_reads:
            self._watches_reads = False
            self._loop.remove_reader(self._fd)

    def _stop_reading(self) -> None:
        self._reading = False
        self._unwatch_reads()

    # Writing

    def _pause_writing(self) -> None:
        if not self._paused_writing:
            self._paused_writing = True
            self._protocol.pause_writing()

    def _go_on_writing(self) -> None:
        if self._outgoing_bytes >= BESIDE_BYTES and self._chunk is None:
            self._write_beside()
        else:
            self._watch_writes()

    def _on_writable(self) -> None:
        if self._lost or self._busy:
            self._unwatch_writes()
            return
        if self._outgoing_bytes >= BESIDE_BYTES:
            self._write_beside()
            return
        try:
            done = self._write_some()
        except OSError as error:
            self._write_failed(error)
            return
        if done:
            self._unwatch_writes()
            self._written()
        elif self._outgoing_bytes <= self._low:
            self._resume_writing()
        if self._read_waits_for_write:
            self._read_waits_for_write = False
            self._on_readable()

    def _write_some(self) -> bool:
        """Encrypt and send until nothing is left (True), the socket is full, or the turn is over. Also called by a worker."""
        turn = TURN_BYTES
        while turn > 0:
            chunk = self._chunk
            if chunk is None:
                if self._chunk_file is None and not self._outgoing:
                    return True
                chunk = self._chunk = self._next_chunk()
            try:
                self._encrypt(chunk)
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                if self._chunk_buffer is not None and self._pool.held > CHUNKS_HELD_MAX:
                    self._release_chunk()
                return False
            size = len(chunk)
            self._release_chunk()
            self._chunk_file = None
            self._outgoing_bytes -= size
            turn -= size
        return not self._outgoing_bytes

    def _next_chunk(self) -> Buffer:
        """Bytes of the queue to be encrypted with one call: a buffer, or a piece of a file behind the buffer before it."""
        outgoing = self._outgoing
        if self._chunk_file is None:
            first = outgoing.popleft()
            head: Buffer = b""
            if not isinstance(first, FileRange):
                if not outgoing or not isinstance(outgoing[0], FileRange) or len(first) > CHUNK_BYTES // 2:
                    return first
                head = first
                first = outgoing.popleft()
            part = first
            assert isinstance(part, FileRange)
            size = min(part.size, CHUNK_BYTES - len(head))
            self._chunk_head = head
            self._chunk_file = part.file
            self._chunk_position = part.position
            self._chunk_size = size
            if size < part.size:
                outgoing.appendleft(FileRange(part.file, part.position + size, part.size - size))
        file = self._chunk_file
        buffer = self._chunk_buffer = self._pool.take()
        start = len(self._chunk_head)
        end = start + self._chunk_size
        buffer[:start] = self._chunk_head
        view = memoryview(buffer)
        have: int = preadv(file.fileno(), [view[start:end]], self._chunk_position)
        if have < self._chunk_size:
            raise OSError(f"{file.path} ends {self._chunk_size - have} bytes before the end of the range")
        return view[:end]

    def _release_chunk(self) -> None:
        self._chunk = None
        if self._chunk_buffer is not None:
            self._pool.release(self._chunk_buffer)
            self._chunk_buffer = None

    def _written(self) -> None:
        """The queue is empty."""
        sent, self._file_sent = self._file_sent, None
        self._resume_writing()
        if sent is not None:
            sent(None)
        if self._closing and not self._outgoing_bytes and not self._busy:
            self._lose(None)

    def _resume_writing(self) -> None:
        if self._paused_writing:
            self._paused_writing = False
            self._protocol.resume_writing()

    def _write_failed(self, error: OSError) -> None:
        sent, self._file_sent = self._file_sent, None
        if sent is not None:
            sent(error)
        self._fail(error)

    def _watch_writes(self) -> None:
        if not self._watches_writes:
            self._watches_writes = True
            self._loop.add_writer(self._fd, self._on_writable)

    def _unwatch_writes(self) -> None:
        if self._watches_writes and not self._read_waits_for_write:
            self._watches_writes = False
            self._loop.remove_writer(self._fd)

    # Writing by a worker thread

    def _write_beside(self) -> None:
        self._unwatch_writes()
        self._unwatch_reads()
        self._busy = True
        self._counters.add("tls_encrypted_beside")
        self._executor().submit(self._work)

    def _work(self) -> None:
        """In the worker's thread."""
        error: OSError | None = None
        done = False
        try:
            ready = select.poll()
            ready.register(self._fd, select.POLLOUT)
            while not done and not self._aborted:
                done = self._write_some()
                if not done and not ready.poll(BESIDE_WAIT_MS):
                    break
        except OSError as failed:
            error = failed
        try:
            self._loop.call_soon_threadsafe(self._worked, error)
        except RuntimeError:
            pass  # the loop is closed: nobody is interested

    def _worked(self, error: OSError | None) -> None:
        self._busy = False
        if self._aborted:
            self._lose(self._error)
            return
        if error is not None:
            self._write_failed(error)
            return
        for data in self._late:
            self._outgoing.append(data)
            self._outgoing_bytes += len(data)
        self._late.clear()
        if self._outgoing_bytes:
            self._watch_writes()
        else:
            self._written()
        if self._reading and not self._closing and not self._lost and not self._busy:
            self._watch_reads()
            if self._ahead or self._pending():
                self._loop.call_soon(self._on_readable)

    # The end

    def _fail(self, error: Exception | None) -> None:
        """Close now, without writing what is queued."""
        if self._lost or self._aborted:
            return
        self._closing = True
        self._aborted = True
        self._error = error
        if self._failed is not None and isinstance(error, ssl.SSLError):
            self._failed(error)
        if self._busy:
            # The worker sees it at its next call of OpenSSL.
            try:
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)
            except OSError:
                pass
            return
        self._lose(error)

    def _lose(self, error: Exception | None) -> None:
        if self._lost:
            return
        self._lost = True
        self._closing = True
        self._reading = False
        self._read_waits_for_write = False
        self._unwatch_reads()
        self._unwatch_writes()
        self._drop_queue()
        self._loop.call_soon(self._tell_lost, error)

    def _tell_lost(self, error: Exception | None) -> None:
        try:
            if not self._aborted:
                self._say_goodbye()
        finally:
            self._socket.close()
            protocol, self._protocol = self._protocol, None
            sent, self._file_sent = self._file_sent, None
            if sent is not None:
                sent(ConnectionResetError("the connection closed while a file range was sent"))
            if protocol is not None:
                protocol.connection_lost(error)

    def _say_goodbye(self) -> None:
        """Send close_notify; that of the peer is not awaited."""
        try:
            self._socket.unwrap().close()
        except (OSError, ValueError):
            pass

    def _drop_queue(self) -> None:
        self._outgoing.clear()
        self._late.clear()
        self._outgoing_bytes = 0
        self._release_chunk()
        self._chunk_file = None


class TlsFileSender:
    """`ports.FileSender` of a TLS connection."""

    def __init__(self, transport: TlsTransport) -> None:
        self._transport = transport

    def send(self, head: Buffer, part: FileRange, sent: Callable[[OSError | None], None]) -> bool:
        return self._transport.send_file(head, part, sent)

    def close(self) -> None:
        """The transport ends a range in progress with the connection."""
