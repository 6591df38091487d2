"""Starts the process of the console: in this one's place, or beside it. Imports nothing of the console, which stands above.

Its settings go through a file or socket, whose number is its argument: they hold passwords.
"""

from __future__ import annotations

import os
import sys
import tempfile
from typing import NoReturn

from ottla.cli.companion import Companion
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


def console_beside(settings: ConsoleSettings) -> Companion:
    """A console that ends with this process, however that ends."""
    return Companion(lambda descriptor: command(descriptor, "--with-owner")[1:], settings.to_json().encode() + b"\n")
