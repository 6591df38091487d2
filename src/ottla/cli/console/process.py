"""Starts the process of the console: in this one's place, or beside it. Imports nothing of the console, which stands above.

Its settings go through a file or socket, whose number is its argument: they hold passwords.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import tempfile
import threading
from typing import NoReturn

from ottla.cli.console.settings import ConsoleSettings

_MODULE = "ottla.console"


def command(descriptor: int, *words: str) -> list[str]:
    return [sys.executable, "-m", _MODULE, str(descriptor), *words]


def become(settings: ConsoleSettings) -> NoReturn:
    """Replace this process by the console: signals and exit code are then its own."""
    with tempfile.TemporaryFile() as file:  # has no name, and only this user can read it
        file.write(settings.to_json().encode() + b"\n")
        file.seek(0)
        os.set_inheritable(file.fileno(), True)
        os.execv(sys.executable, command(file.fileno()))


class ConsoleProcess:
    """A console that ends with this process, however that ends."""

    def __init__(self, settings: ConsoleSettings) -> None:
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(
                command(theirs.fileno(), "--with-owner"), stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()]
            )
        finally:
            theirs.close()
        self._channel = ours
        threading.Thread(target=ours.sendall, args=(settings.to_json().encode() + b"\n",), daemon=True).start()

    def close(self, timeout_s: float = 5.0) -> None:
        self._channel.close()
        try:
            self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
