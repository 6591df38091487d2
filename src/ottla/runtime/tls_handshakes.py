"""TLS handshakes of accepted and of outgoing connections, before any protocol hears of them (TL07).

1. A handshake that has not ended after `HANDSHAKE_S` is closed.
2. A listener has at most `PENDING_MAX` unfinished handshakes. Beyond that, the oldest of the address that has most of them gives
   way: an address that opens connections and says nothing drives out its own.
3. Memory for TLS is taken when the first bytes have come and look like TLS. A silent connection costs a socket.
4. Each failure is reported once, with address and reason. A connection that closes without a byte is no failure.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any, Final

from ottla.ports import ServerTls
from ottla.runtime.congestion import same_machine, use_system_algorithm

logger = logging.getLogger(__name__)

HANDSHAKE_S: Final = 15.0
PENDING_MAX: Final = 512
ACCEPTS_MAX: Final = 64
"""Connections accepted before other events get their turn."""
ACCEPT_PAUSE_S: Final = 1.0
"""After an error such as too many open files."""
_HANDSHAKE_RECORD: Final = 0x16

Ready = Callable[[ssl.SSLSocket, Any], None]
"""(socket after the handshake, address of the peer)"""


class Handshake:
    """One handshake, on either side. `done` is called once, unless `close` comes first."""

    def __init__(self, loop: asyncio.AbstractEventLoop, sock: ssl.SSLSocket, done: Callable[[OSError | None], None]) -> None:
        self._loop = loop
        self.socket = sock
        self._fd = sock.fileno()
        self._done = done
        self._watches_writes = False
        loop.add_reader(self._fd, self.step)

    def step(self) -> None:
        error: OSError | None = None
        try:
            self.socket.do_handshake()
        except ssl.SSLWantReadError:
            if self._watches_writes:
                self._watches_writes = False
                self._loop.remove_writer(self._fd)
            return
        except ssl.SSLWantWriteError:
            if not self._watches_writes:
                self._watches_writes = True
                self._loop.add_writer(self._fd, self.step)
            return
        except OSError as failed:
            error = failed
        except ValueError as failed:  # of the check of a host name
            error = OSError(str(failed))
        self._unwatch()
        self._done(error)

    def close(self) -> None:
        self._unwatch()
        self.socket.close()

    def _unwatch(self) -> None:
        self._loop.remove_reader(self._fd)
        if self._watches_writes:
            self._watches_writes = False
            self._loop.remove_writer(self._fd)


class _Pending:
    """An accepted connection until its handshake has ended."""

    __slots__ = ("address", "deadline", "handshake", "host", "sock")

    def __init__(self, sock: socket.socket, address: Any, deadline: float) -> None:
        self.sock = sock
        self.address = address
        self.host = str(address[0]).removeprefix("::ffff:")
        self.deadline = deadline
        self.handshake: Handshake | None = None


class TlsListener:
    """`ports.Listener`: accepts connections, and hands them on after their handshake."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, sock: socket.socket, tls: ServerTls, ready: Ready, *, unpaced: bool = False
    ) -> None:
        """`unpaced`: accepted sockets have the congestion control of this machine, see `congestion`."""
        self._loop = loop
        self._socket = sock
        self._tls = tls
        self._ready = ready
        self._unpaced = unpaced
        self.port = int(sock.getsockname()[1])
        self._pending: dict[_Pending, None] = {}
        """In the order of arrival, which is that of the deadlines."""
        self._timer: asyncio.TimerHandle | None = None
        self._resume: asyncio.TimerHandle | None = None
        self._closed = False
        self._paused = False
        loop.add_reader(sock.fileno(), self._accept)

    def __len__(self) -> int:
        """The number of unfinished handshakes."""
        return len(self._pending)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        self._loop.remove_reader(self._socket.fileno())
        if self._resume is not None:
            self._resume.cancel()
        if self._timer is not None:
            self._timer.cancel()
        self._socket.close()
        for pending in list(self._pending):
            self._drop(pending)

    def pause(self) -> None:
        self._paused = True
        self._loop.remove_reader(self._socket.fileno())

    def resume(self) -> None:
        self._paused = False
        if self._resume is None:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_MAX):
            if self._paused:
                return
            try:
                sock, address = self._socket.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                logger.error("Cannot accept connections on port %d, trying again in %.0f s: %s", self.port, ACCEPT_PAUSE_S, error)
                self._loop.remove_reader(self._socket.fileno())
                self._resume = self._loop.call_later(ACCEPT_PAUSE_S, self._accept_again)
                return
            self._begin(sock, address)

    def _accept_again(self) -> None:
        self._resume = None
        if not self._paused:
            self._loop.add_reader(self._socket.fileno(), self._accept)

    def _begin(self, sock: socket.socket, address: Any) -> None:
        pending = _Pending(sock, address, self._loop.time() + HANDSHAKE_S)
        if not self._tls.admits(pending.host):
            sock.close()
            return
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            if self._unpaced and not same_machine(sock.getsockname(), address):
                use_system_algorithm(sock)
        except OSError:
            sock.close()
            return
        if len(self._pending) >= PENDING_MAX:
            self._make_room()
        self._pending[pending] = None
        self._loop.add_reader(sock.fileno(), self._first_bytes, pending)
        if self._timer is None:
            self._timer = self._loop.call_at(pending.deadline, self._expire)

    def _make_room(self) -> None:
        counts: dict[str, int] = {}
        for pending in self._pending:
            counts[pending.host] = counts.get(pending.host, 0) + 1
        busiest = max(counts, key=lambda host: counts[host])
        oldest = next(pending for pending in self._pending if pending.host == busiest)
        self._fail(oldest, f"{len(self._pending)} handshakes are unfinished, {counts[busiest]} of them of this address")

    def _expire(self) -> None:
        self._timer = None
        now = self._loop.time()
        for pending in list(self._pending):
            if pending.deadline > now:
                self._timer = self._loop.call_at(pending.deadline, self._expire)
                return
            self._fail(pending, f"no TLS handshake within {HANDSHAKE_S:.0f} s")

    def _first_bytes(self, pending: _Pending) -> None:
        sock = pending.sock
        try:
            first = sock.recv(1, socket.MSG_PEEK)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:
            first = b""
        if not first:
            self._drop(pending)
            return
        if first[0] != _HANDSHAKE_RECORD:
            self._fail(pending, "it does not speak TLS; this listener does")
            return
        self._loop.remove_reader(sock.fileno())
        try:
            secured = self._tls.context().wrap_socket(sock, server_side=True, do_handshake_on_connect=False)
        except (OSError, ValueError) as error:
            pending.sock.close()
            del self._pending[pending]
            self._tls.failed(pending.host, pending.address[1], reason_of(error))
            return
        pending.sock = secured
        pending.handshake = Handshake(self._loop, secured, lambda error: self._ended(pending, error))
        pending.handshake.step()

    def _ended(self, pending: _Pending, error: OSError | None) -> None:
        if error is not None:
            self._fail(pending, reason_of(error))
            return
        assert pending.handshake is not None
        del self._pending[pending]
        self._ready(pending.handshake.socket, pending.address)

    def _fail(self, pending: _Pending, reason: str) -> None:
        self._drop(pending)
        self._tls.failed(pending.host, pending.address[1], reason)

    def _drop(self, pending: _Pending) -> None:
        del self._pending[pending]
        if pending.handshake is not None:
            pending.handshake.close()
        else:
            self._loop.remove_reader(pending.sock.fileno())
            pending.sock.close()


_REASONS: Final = {
    "HTTP_REQUEST": "it speaks HTTP, not TLS",
    "NO_SHARED_CIPHER": "no cipher suite in common (ssl.cipher.suites)",
    "PEER_DID_NOT_RETURN_A_CERTIFICATE": "it presented no certificate (ssl.client.auth=required)",
    "UNSUPPORTED_PROTOCOL": "no TLS version in common (ssl.enabled.protocols)",
    "TLSV1_ALERT_UNKNOWN_CA": "it does not trust the certificate of this broker (alert unknown CA)",
    "SSLV3_ALERT_CERTIFICATE_UNKNOWN": "it does not accept the certificate of this broker (alert certificate unknown)",
    "SSLV3_ALERT_CERTIFICATE_EXPIRED": "it does not accept the certificate of this broker (alert certificate expired)",
    "SSLV3_ALERT_BAD_CERTIFICATE": "it does not accept the certificate of this broker (alert bad certificate)",
}


def reason_of(error: Exception) -> str:
    """Why a handshake or a TLS connection failed, for a log line."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLEOFError | ConnectionError):
        return "it closed the connection during the TLS handshake"
    if isinstance(error, ssl.SSLError) and error.reason:
        return _REASONS.get(error.reason) or f"TLS failed: {error.reason.lower().replace('_', ' ')}"
    return str(error)
