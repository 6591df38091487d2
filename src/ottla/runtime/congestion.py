"""TCP congestion control for connections inside one machine.

BBR, the default of some systems, paces what it sends with timers and half-full packets. Over loopback that only costs CPU. Where
the system's algorithm is BBR, connections from this machine use reno; all others keep the system's algorithm.

1. The algorithm is chosen before the connection exists: a connection that began with BBR stays paced whatever is set later. So
   the listener has reno, which every Linux has, and accepted sockets inherit it.
2. A peer on another machine gets the system's algorithm back when it has connected, before anything is sent to it. An algorithm
   that came with a route stays.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

_OPTION: int = getattr(socket, "TCP_CONGESTION", -1)
"""Linux only."""
_NAME_BYTES_MAX = 16
_PACED = b"bbr"
_UNPACED = b"reno"


def on_this_machine(transport: asyncio.BaseTransport) -> bool:
    """Whether the peer of a connection is on this machine."""
    return same_machine(transport.get_extra_info("sockname"), transport.get_extra_info("peername"))


def same_machine(own: object, peer: object) -> bool:
    """Whether the two addresses of a connection are of one machine."""
    if not isinstance(own, tuple) or not isinstance(peer, tuple):
        return False
    host = _plain(peer[0])
    return host == _plain(own[0]) or host.startswith("127.") or host == "::1"


def _plain(host: object) -> str:
    return str(host).lower().removeprefix("::ffff:")


def begin_unpaced(listener: socket.socket) -> bool:
    """Let accepted connections begin with reno, if the system's algorithm is BBR and can be set again."""
    if _OPTION < 0:
        return False
    try:
        with socket.socket() as trial:
            if _algorithm(trial) != _PACED:
                return False
            for name in (_UNPACED, _PACED):
                trial.setsockopt(socket.IPPROTO_TCP, _OPTION, name)
        listener.setsockopt(socket.IPPROTO_TCP, _OPTION, _UNPACED)
    except OSError:
        return False
    return True


def use_system_algorithm(sock: socket.socket) -> None:
    """For an accepted socket of a listener with reno."""
    try:
        if _algorithm(sock) == _UNPACED:
            with socket.socket() as fresh:
                system = _algorithm(fresh)
            sock.setsockopt(socket.IPPROTO_TCP, _OPTION, system)
    except OSError:
        pass  # the connection is closed, or the system refuses


def _algorithm(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, _OPTION, _NAME_BYTES_MAX).partition(b"\0")[0]


class UnpacedOnThisMachine(asyncio.BaseProtocol):
    """Stands in for a protocol until the connection is made."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def connection_made(self, transport: Any) -> None:
        if not on_this_machine(transport):
            use_system_algorithm(transport.get_extra_info("socket"))
        transport.set_protocol(self._protocol)
        self._protocol.connection_made(transport)
