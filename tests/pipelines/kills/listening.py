"""A proxy in front of a broker that sees every request go by, and strikes when a certain one does.

Owns: passing frames on, one thread for each direction of each connection. A blow falls while the frame it waited for is held:
before the broker has it, or after the broker answered and before the client knows. So kills hit the moments that matter, and
the product needs no fail points.
"""

from __future__ import annotations

import socket
import struct
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field

PRODUCE, END_TXN, TXN_OFFSET_COMMIT = 0, 26, 28
BEFORE, AFTER = "before", "after"
PASS, DROP = True, False

Act = Callable[[], bool]
"""What happens; whether the frame then goes on, or its connection is closed."""


@dataclass
class Blow:
    api_key: int
    moment: str
    about: bytes
    """In the first bytes of the request: whose it is (a transactional id)."""
    act: Act
    begun: threading.Event = field(default_factory=threading.Event)
    struck: threading.Event = field(default_factory=threading.Event)
    failure: BaseException | None = None


class Proxy:
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.upstream: tuple[str, int] | None = None
        self._lock = threading.Lock()
        self._blow: Blow | None = None
        self._open: set[socket.socket] = set()
        self._closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def arm(self, api_key: int, moment: str, about: str, act: Act) -> Blow:
        """The next such request strikes, once."""
        blow = Blow(api_key, moment, about.encode(), act)
        with self._lock:
            assert self._blow is None, "a blow is waiting already"
            self._blow = blow
        return blow

    def close(self) -> None:
        self._closed = True
        # Closing alone does not wake accept().
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for each in list(self._open):
            _cut(each)

    def _accept(self) -> None:
        while not self._closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        assert self.upstream is not None
        try:
            broker = socket.create_connection(self.upstream, 10)
        except OSError:
            client.close()
            return
        broker.settimeout(None)
        for each in (client, broker):
            each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._open |= {client, broker}
        asked: deque[bytes] = deque()
        answers = threading.Thread(target=self._answers, args=(client, broker, asked), daemon=True)
        answers.start()
        with suppress(OSError):
            while (frame := _frame(client)) is not None:
                if not self._strike(frame, BEFORE):
                    break
                asked.append(frame[:256])
                broker.sendall(frame)
        _cut(broker)
        answers.join()
        _cut(client)
        self._open -= {client, broker}
        client.close()
        broker.close()

    def _answers(self, client: socket.socket, broker: socket.socket, asked: deque[bytes]) -> None:
        with suppress(OSError):
            while (frame := _frame(broker)) is not None:
                # A broker answers a connection's requests in their order.
                if not self._strike(asked.popleft(), AFTER):
                    break
                client.sendall(frame)
        _cut(client)

    def _strike(self, request: bytes, moment: str) -> bool:
        with self._lock:
            blow = self._blow
            if blow is None or moment != blow.moment or blow.api_key != struct.unpack_from(">h", request, 4)[0]:
                return PASS
            if blow.about not in request[:256]:
                return PASS
            self._blow = None
        blow.begun.set()
        try:
            return blow.act()
        except BaseException as error:
            blow.failure = error
            return DROP
        finally:
            blow.struck.set()


def _cut(connection: socket.socket) -> None:
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


def _frame(connection: socket.socket) -> bytes | None:
    head = _exactly(connection, 4)
    body = None if head is None else _exactly(connection, struct.unpack(">i", head)[0])
    return None if head is None or body is None else head + body


def _exactly(connection: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)
