"""Ports of this machine for servers that are about to be started by this process."""

from __future__ import annotations

import errno
import random
import socket
from typing import Final

_PORTS: Final = range(15_000, 32_000)
"""Below those that systems give to outgoing connections: one of these could take a port between our look at it and the bind of
the server it is for, or while that server is down."""
_TRIES: Final = 1000
_given: set[int] = set()


def free_port() -> int:
    """One that was free a moment ago, and that this function has not given to this process before. OSError if none is found."""
    for port in random.sample(_PORTS, _TRIES):
        if port not in _given and is_free(port):
            _given.add(port)
            return port
    raise OSError(errno.EADDRINUSE, f"no free port found between {_PORTS.start} and {_PORTS.stop - 1}")


def is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As servers do it: a port with old connections in TIME_WAIT is free.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True
