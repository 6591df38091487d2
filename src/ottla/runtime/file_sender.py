"""File ranges to a socket by `sendfile`, each with the bytes that go before it.

Owns a duplicate of a transport's socket, for uvloop has no `loop.sendfile`. Never looks at the bytes that pass.

1. It is used only while the transport has nothing of its own to write: bytes would overtake each other.
2. The duplicate is closed with the connection: the peer would see no end otherwise.
3. Who waits is told by a call, not by a future, and the socket stays watched while one range follows the other: between two
   ranges of a reply there is no turn of the loop.
4. The bytes before a range wait in the kernel for its first ones (MSG_MORE): alone they would be a packet of their own, and would
   wake the peer up for nothing.

Compiled by mypyc: a reply to a fast consumer comes through here several times.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from typing import Final

from ottla.metrics import Counters
from ottla.ports import File, FileRange
from ottla.types import Buffer

TURN_BYTES: Final = 4 << 20
"""After so much for one connection in one go the others get their turn, even if the peer still takes more."""
_MORE_FOLLOWS: Final[int] = getattr(socket, "MSG_MORE", 0)
"""Linux has it."""


class SocketFileSender:
    """File ranges on one connection, one at a time."""

    __slots__ = ("_count", "_counters", "_file", "_head", "_loop", "_position", "_sent", "_socket", "_socket_fd", "_watched")

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, counters: Counters) -> None:
        self._loop = loop
        self._counters = counters
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        self._socket_fd: int = self._socket.fileno()
        self._head: Buffer = b""
        self._file: File | None = None
        """Held while it is sent: the last reference closes a file."""
        self._position = 0
        self._count = 0
        self._sent: Callable[[OSError | None], None] | None = None
        self._watched = False
        """The loop says when the socket takes more."""

    def send(self, head: Buffer, part: FileRange, sent: Callable[[OSError | None], None]) -> bool:
        assert self._sent is None, "one range at a time"
        self._head = head
        self._file = part.file
        self._position = part.position
        self._count = part.size
        if self._send_some():
            return True
        self._sent = sent
        if not self._watched:
            self._watched = True
            self._loop.add_writer(self._socket_fd, self._on_writable)
        return False

    def close(self) -> None:
        if self._sent is not None:
            self._finish(ConnectionResetError("the connection closed in the middle of a file"))
        self._socket.close()

    def _send_some(self) -> bool:
        """Send what the socket takes; True if that was the rest."""
        file = self._file
        assert file is not None
        try:
            if self._head:
                taken = self._socket.send(self._head, _MORE_FOLLOWS)
                self._head = self._head[taken:]
                if self._head:
                    return False
            sent = os.sendfile(self._socket_fd, file.fileno(), self._position, min(self._count, TURN_BYTES))
        except BlockingIOError:
            return False
        if not sent:
            raise OSError(f"file ends {self._count} bytes before the range that was promised")
        self._counters.add("sendfile_bytes", sent)
        self._position += sent
        self._count -= sent
        if self._count:
            return False  # the socket is full, or the turn is over: asking once more would mostly cost an exception
        self._file = None
        return True

    def _on_writable(self) -> None:
        try:
            if not self._send_some():
                return
        except OSError as error:
            self._finish(error)
            return
        self._finish(None)

    def _finish(self, error: OSError | None) -> None:
        sent, self._sent = self._sent, None
        self._file = None
        try:
            if sent is not None:
                sent(error)
        finally:
            self._rest()

    def _rest(self) -> None:
        """No need to watch the socket any more, unless the next range has begun and waits already."""
        if self._watched and self._sent is None:
            self._watched = False
            self._loop.remove_writer(self._socket_fd)
