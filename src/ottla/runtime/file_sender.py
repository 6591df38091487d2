"""Sends file ranges to a socket by `sendfile`, each after the bytes that precede it.

Owns a duplicate of the transport's socket: uvloop has no `loop.sendfile`.

1. It is used only while the transport's write buffer is empty, else bytes would overtake each other.
2. The duplicate is closed with the connection, else the peer would not see its end.
3. Completion is a callback, not a future, and the socket stays watched from one range to the next: between two ranges of a
   response there is no iteration of the loop.
4. The bytes before a range wait in the kernel for its first bytes (MSG_MORE), else they would be a packet of their own.

Compiled by mypyc: a response to a fast consumer passes here several times.
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
"""Bytes that one connection sends at most before other connections get their turn."""
_MORE_FOLLOWS: Final[int] = getattr(socket, "MSG_MORE", 0)
"""Linux only."""


class SocketFileSender:
    """File ranges on one connection, one at a time."""

    def __init__(self, loop: asyncio.AbstractEventLoop, transport: asyncio.Transport, counters: Counters) -> None:
        self._loop = loop
        self._counters = counters
        self._socket = socket.socket(fileno=os.dup(transport.get_extra_info("socket").fileno()))
        self._socket_fd: int = self._socket.fileno()
        self._head: Buffer = b""
        self._file: File | None = None
        """Referenced while it is sent: dropping the last reference closes a file."""
        self._position = 0
        self._count = 0
        self._sent: Callable[[OSError | None], None] | None = None
        self._watched = False
        """The loop watches the socket for writability."""

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
            self._finish(ConnectionResetError("the connection closed while a file range was sent"))
        self._socket.close()

    def _send_some(self) -> bool:
        """Send what the socket accepts; True if nothing is left."""
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
            raise OSError(f"the file ends {self._count} bytes before the end of the range")
        self._counters.add("sendfile_bytes", sent)
        self._position += sent
        self._count -= sent
        if self._count:
            return False  # the socket is full or the turn is over; another call would mostly raise BlockingIOError
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
            self._unwatch()

    def _unwatch(self) -> None:
        """Stop watching the socket, unless the next range waits already."""
        if self._watched and self._sent is None:
            self._watched = False
            self._loop.remove_writer(self._socket_fd)
