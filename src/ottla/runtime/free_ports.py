"""Finds free TCP ports for servers that this process is about to start."""

from __future__ import annotations

import errno
import random
import socket
from typing import Final

_PORTS: Final = range(15_000, 32_000)
"""Below the ports of outgoing connections, one of which could take a port before the server binds it or while it restarts."""
_TRIES: Final = 1000
_given: set[int] = set()


def free_port() -> int:
    """A port that was free a moment ago and that this process was not given before. OSError if none is found."""
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
