"""Congestion control for connections inside one machine, where there is nothing to control.

BBR, some systems' default, paces what it sends: timers, and packets that are half full. Between two programs of one machine that
is only dear: sending a gigabyte of files over loopback measured 0.15 s of CPU with it and 0.11 without.

Owns the choice of the algorithm. Never leaves another than the administrator's to a peer on another machine, nor touches anything
where the system's is not BBR.

1. The choice is made before there is a connection. One that has begun with BBR stays paced whatever is set later (0.24 s): so the
   listener has reno, which every Linux has and everybody may choose, and what is accepted inherits it.
2. A peer elsewhere gets the system's own algorithm back when it has connected, so before anything is sent to it. An algorithm
   that came with a route is none of the listener's, and stays.
"""

from __future__ import annotations

import asyncio
import socket
from typing import Any

_OPTION: int = getattr(socket, "TCP_CONGESTION", -1)
"""Linux has it."""
_NAME_BYTES_MAX = 16
_PACED = b"bbr"
_UNPACED = b"reno"


def on_this_machine(transport: asyncio.BaseTransport) -> bool:
    """Is its peer?"""
    return same_machine(transport.get_extra_info("sockname"), transport.get_extra_info("peername"))


def same_machine(own: object, peer: object) -> bool:
    """Of the two addresses of a connection, as sockets tell them."""
    if not isinstance(own, tuple) or not isinstance(peer, tuple):
        return False
    host = _plain(peer[0])
    return host == _plain(own[0]) or host.startswith("127.") or host == "::1"


def _plain(host: object) -> str:
    return str(host).lower().removeprefix("::ffff:")


def begin_unpaced(listener: socket.socket) -> bool:
    """Have connections begin without BBR, if they would begin with it and can be given it back."""
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


def take_the_systems_own(sock: socket.socket) -> None:
    """For an accepted socket of a listener that begins unpaced."""
    try:
        if _algorithm(sock) == _UNPACED:
            with socket.socket() as fresh:
                system = _algorithm(fresh)
            sock.setsockopt(socket.IPPROTO_TCP, _OPTION, system)
    except OSError:
        pass  # it is gone already, or the system does not want it


def _algorithm(sock: socket.socket) -> bytes:
    return sock.getsockopt(socket.IPPROTO_TCP, _OPTION, _NAME_BYTES_MAX).partition(b"\0")[0]


class UnpacedOnThisMachine(asyncio.BaseProtocol):
    """A protocol in place of another until its connection is there."""

    def __init__(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def connection_made(self, transport: Any) -> None:
        if not on_this_machine(transport):
            take_the_systems_own(transport.get_extra_info("socket"))
        transport.set_protocol(self._protocol)
        self._protocol.connection_made(transport)
