"""One end of a connection: a transport that treats its protocol the way a real one does.

1. Bytes of one direction arrive once and in order, in pieces of seeded sizes, whatever the frames.
2. At most `window_bytes` are between write and read: a reader that pauses stops its writer. `pause_writing` is called above the
   high-water mark of what waits, `resume_writing` below the low one.
3. `connection_made` comes first, `connection_lost` last and once. After `close` what was written still arrives; after `abort`, a
   reset or a death it may not. What a process wrote before it died arrives: the kernel has it.
4. A file range is read when the window has room for it, not when `send` is called.
"""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterable
from contextvars import Context
from typing import TYPE_CHECKING, Any, Final, cast

from ottla.ports import FileRange
from ottla.sim.kernel.process import Process
from ottla.types import Buffer

if TYPE_CHECKING:
    from ottla.sim.kernel.network import SimListener, SimNetwork

HIGH_WATER_BYTES: Final = 64 * 1024
PIECE_BYTES_MAX: Final = 256 * 1024


class SimTransport(asyncio.Transport):
    """One end of a connection."""

    def __init__(
        self,
        network: SimNetwork,
        process: Process,
        protocol: asyncio.BaseProtocol | None,
        sockname: tuple[str, int],
        peername: tuple[str, int],
        *,
        client_side: bool,
        host: str,
    ) -> None:
        super().__init__({"sockname": sockname, "peername": peername, "socket": None})
        self._network = network
        self._loop = asyncio.get_running_loop()
        self._protocol = protocol
        self._buffered = hasattr(protocol, "get_buffer")
        self.process = process
        self.client_side = client_side
        self.host = host
        self.name = f"{sockname[1]}-{peername[1]}"
        self.context: Context = process.context()
        self.peer: SimTransport | None = None
        rng = network.rng
        self._piece_bytes = rng.choice((1, 7, 64, 1000)) if rng.random() < network.settings.crumbs_chance else PIECE_BYTES_MAX
        self._window_bytes = network.settings.window_bytes
        # out: bytes that wait for the window, and how many of ours the window holds
        self._waiting = bytearray()
        self._in_window = 0
        self._last_arrival_s = 0.0
        self._high = HIGH_WATER_BYTES
        self._low = HIGH_WATER_BYTES // 4
        self._writing_paused = False
        self._pump_scheduled = False
        self._sender: SimFileSender | None = None
        # in: bytes that arrived and were not read
        self._arrived = bytearray()
        self._arrived_end = False
        self._reading = True
        self._started = False
        self._deliver_scheduled = False
        self._closing = False
        self._sent_end = False
        self.lost = False
        self.held: list[tuple[SimTransport, Callable[..., None], tuple[Any, ...]]] | None = None
        """What is held until `release`; None: nothing is held."""
        self.held_from: int | None = None
        """Hold only from the first request of this API on."""

    # -- life

    def accept(self, listener: SimListener) -> None:
        protocol = listener.factory()
        if self._network.authenticate is not None:
            self._network.authenticate(protocol, self.get_extra_info("peername")[0])
        self.set_protocol(protocol)
        self.start()

    def start(self) -> None:
        self._loop.call_soon(self._made, context=self.context)

    def _made(self) -> None:
        if self.lost:
            return
        assert self._protocol is not None
        self._protocol.connection_made(self)
        self._started = True
        self._schedule_delivery()

    def is_closing(self) -> bool:
        return self._closing or self.lost

    def close(self) -> None:
        if self._closing or self.lost:
            return
        self._closing = True
        self._reading = False
        self._pump()

    def abort(self) -> None:
        self._lose(None, tell_peer=ConnectionResetError(errno.ECONNRESET, "connection reset by peer"))

    def reset(self) -> None:
        """The network cut the connection."""
        self._lose(ConnectionResetError(errno.ECONNRESET, "connection reset"), tell_peer=None)

    def owner_died(self) -> None:
        peer = self.peer
        self.lost = True
        self._network.forget(self)
        if peer is not None and not peer.lost:
            self.later(peer, peer.reset)

    def _lose(self, error: Exception | None, tell_peer: Exception | None) -> None:
        if self.lost:
            return
        self.lost = True
        self._closing = True
        self._waiting.clear()
        self._arrived.clear()
        if self._sender is not None:
            self._sender.close()
        self._network.forget(self)
        self._loop.call_soon(self._call_lost, error, context=self.context)
        peer = self.peer
        if tell_peer is not None and peer is not None and not peer.lost:
            self.later(peer, peer.reset)

    def _call_lost(self, error: Exception | None) -> None:
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    def later(self, peer: SimTransport, callback: Callable[..., None], *args: Any) -> None:
        """Call the peer after the latency, never before what was sent earlier."""
        if self.held is not None and (self.held or self.held_from is None or _is_request(args, self.held_from)):
            self.held.append((peer, callback, args))
            return
        if self._network.hold(self, peer, callback, args):
            return
        when = max(self._last_arrival_s, self._loop.time() + self._network.latency_s())
        self._last_arrival_s = when
        self._network.last_arrival_s = max(self._network.last_arrival_s, when)
        self._loop.call_at(when, callback, *args, context=peer.context)

    # -- out

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self.process.alive or self.lost or self._closing or not data:
            return
        assert self._sender is None or not self._sender.busy, "bytes would overtake the file"
        self._waiting += data
        self._pump()
        if len(self._waiting) > self._high and not self._writing_paused:
            self._writing_paused = True
            assert self._protocol is not None
            self._protocol.pause_writing()

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return True

    def write_eof(self) -> None:
        if not self._waiting:
            self._send_end()

    def get_write_buffer_size(self) -> int:
        return len(self._waiting)

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return self._low, self._high

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = high if high is not None else (4 * low if low is not None else HIGH_WATER_BYTES)
        self._low = low if low is not None else self._high // 4

    def file_sender(self) -> SimFileSender:
        if self._sender is None:
            self._sender = SimFileSender(self)
        return self._sender

    def room(self) -> int:
        return self._window_bytes - self._in_window

    def send_now(self, data: bytes) -> None:
        """Put bytes into the window. The caller has checked `room()`."""
        peer = self.peer
        assert peer is not None
        self._in_window += len(data)
        if not peer.lost:
            self.later(peer, peer.arrive, data)

    def _pump(self) -> None:
        self._pump_scheduled = False
        if self.lost or not self.process.alive:
            return
        count = min(len(self._waiting), self.room())
        if count > 0:
            piece = bytes(self._waiting[:count])
            del self._waiting[:count]
            self.send_now(piece)
        if self._writing_paused and len(self._waiting) <= self._low:
            self._writing_paused = False
            assert self._protocol is not None
            self._protocol.resume_writing()
        if self._sender is not None and self._sender.busy:
            self._sender.go_on()
        elif self._closing and not self._waiting:
            self._send_end()
            self.lost = True
            self._network.forget(self)
            self._loop.call_soon(self._call_lost, None, context=self.context)

    def _send_end(self) -> None:
        peer = self.peer
        if self._sent_end or peer is None or peer.lost:
            return
        self._sent_end = True
        self.later(peer, peer.arrive_end)

    def taken(self, count: int) -> None:
        """The peer has read bytes: the window opens."""
        self._in_window -= count
        busy = self._sender is not None and self._sender.busy
        if (self._waiting or busy or self._writing_paused) and not self._pump_scheduled:
            self._pump_scheduled = True
            self._loop.call_soon(self._pump, context=self.context)

    # -- in

    def arrive(self, data: bytes) -> None:
        if not self.lost:
            self._arrived += data
            self._schedule_delivery()

    def arrive_end(self) -> None:
        self._arrived_end = True
        self._schedule_delivery()

    def is_reading(self) -> bool:
        return self._reading and not self._closing

    def pause_reading(self) -> None:
        self._reading = False

    def resume_reading(self) -> None:
        if not self._closing and not self.lost:
            self._reading = True
            self._schedule_delivery()

    def _schedule_delivery(self) -> None:
        if not self._deliver_scheduled and self._started and (self._arrived or self._arrived_end):
            self._deliver_scheduled = True
            self._loop.call_soon(self._deliver, context=self.context)

    def _deliver(self) -> None:
        self._deliver_scheduled = False
        if self.lost or not self._reading:
            return
        if not self._arrived:
            if self._arrived_end:
                self._arrived_end = False
                self._on_end()
            return
        limit = min(self._piece_bytes, len(self._arrived))
        if limit > 1 and self._piece_bytes != PIECE_BYTES_MAX:
            limit = self._network.rng.randint(1, limit)
        if self._buffered:
            count = self._deliver_into_buffer(limit)
        else:
            count = limit
            data = bytes(self._arrived[:count])
            del self._arrived[:count]
            assert isinstance(self._protocol, asyncio.Protocol)
            self._protocol.data_received(data)
        peer = self.peer
        if peer is not None and not peer.lost and peer.process.alive:
            peer.taken(count)
        self._schedule_delivery()

    def _deliver_into_buffer(self, limit: int) -> int:
        protocol = cast(asyncio.BufferedProtocol, self._protocol)
        buffer = memoryview(protocol.get_buffer(-1))
        count = min(limit, len(buffer))
        assert count > 0, "get_buffer() gave an empty buffer"
        buffer[:count] = self._arrived[:count]
        buffer.release()
        del self._arrived[:count]
        protocol.buffer_updated(count)
        return count

    def _on_end(self) -> None:
        assert self._protocol is not None
        keep_open = self._protocol.eof_received()  # type: ignore[attr-defined]
        if not keep_open:
            self.close()

    # -- protocol

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        self._buffered = hasattr(protocol, "get_buffer")

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol


class SimFileSender:
    """`ports.FileSender`: sends a file range as the window takes it."""

    def __init__(self, transport: SimTransport) -> None:
        self._transport = transport
        self._head: Buffer = b""
        self._part: FileRange | None = None
        self._position = 0
        self._left = 0
        self._sent: Callable[[OSError | None], None] | None = None
        self._closed = False

    @property
    def busy(self) -> bool:
        return self._sent is not None

    def send(self, head: Buffer, part: FileRange, sent: Callable[[OSError | None], None]) -> bool:
        assert self._sent is None, "one range at a time"
        assert self._transport.get_write_buffer_size() == 0, "the file would overtake bytes"
        if self._closed or self._transport.lost:
            raise ConnectionResetError(errno.ECONNRESET, "connection reset")
        self._head = head
        self._part, self._position, self._left = part, part.position, part.size
        if self._send_some():
            return True
        self._sent = sent
        return False

    def go_on(self) -> None:
        try:
            if not self._send_some():
                return
        except OSError as error:
            self._finish(error)
            return
        self._finish(None)

    def close(self) -> None:
        self._closed = True
        if self._sent is not None:
            self._finish(ConnectionResetError(errno.ECONNRESET, "the connection closed in the middle of a file"))

    def _send_some(self) -> bool:
        """Send what the window takes. True: that was the rest."""
        part = self._part
        assert part is not None
        while self._head and (room := self._transport.room()) > 0:
            self._transport.send_now(bytes(self._head[:room]))
            self._head = self._head[room:]
        while self._left and (room := self._transport.room()) > 0:
            data = part.file.read(self._position, min(room, self._left))
            if not data:
                raise OSError(errno.EIO, f"file ends {self._left} bytes before the range that was promised")
            self._position += len(data)
            self._left -= len(data)
            self._transport.send_now(data)
        return not self._head and not self._left

    def _finish(self, error: OSError | None) -> None:
        sent, self._sent = self._sent, None
        if sent is not None:
            asyncio.get_running_loop().call_soon(sent, error, context=self._transport.context)


def _is_request(sent: tuple[Any, ...], api_key: int) -> bool:
    """Whether the bytes begin with a request of this API: its size, then the key."""
    return bool(sent) and int.from_bytes(sent[0][4:6], "big") == api_key
