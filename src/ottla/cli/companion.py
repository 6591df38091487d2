"""A process beside this one that ends with it, however this one ends: it watches one end of a socket pair."""

from __future__ import annotations

import contextlib
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence


class Companion:
    def __init__(self, words: Callable[[int], Sequence[str]], first: bytes = b"") -> None:
        """`words` makes the arguments of Python, of the number of the socket. `first` is sent to the process, as its settings."""
        ours, theirs = socket.socketpair()
        with theirs:
            command = [sys.executable, *words(theirs.fileno())]
            self._process = subprocess.Popen(command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()])
        self._channel = ours
        if first:
            threading.Thread(target=_send, args=(ours, first), daemon=True).start()

    def close(self, timeout_s: float = 5.0) -> None:
        self._channel.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def registry_beside(bootstrap_servers: str, host: str, port: int) -> Companion:
    """A schema registry of these brokers."""
    words = ["-m", "ottla", "registry", "-b", bootstrap_servers, "--listen", address_text(host, port), "--supervisor-fd"]
    return Companion(lambda descriptor: [*words, str(descriptor)])


def address_text(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _send(channel: socket.socket, settings: bytes) -> None:
    # It may have ended: a Ctrl-C reaches it too.
    with contextlib.suppress(OSError):
        channel.sendall(settings)
