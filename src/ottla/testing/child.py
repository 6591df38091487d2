"""A command of Ottla as a child process, for tests: what brokers and registries have in common.

1. It tells over a socket pair that it is ready. Nothing is polled.
2. It ends with this process, also if that is killed: it watches the socket pair.
"""

from __future__ import annotations

import os
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import weakref
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

_STOP_TIMEOUT_S = 30.0


class Child(ABC):
    """`what` is its name in errors, which are of the class `failed`."""

    def __init__(self, what: str, failed: type[Exception]) -> None:
        self.process: subprocess.Popen[bytes] | None = None
        self._what = what
        self._failed = failed
        self._lifeline: socket.socket | None = None
        self._scratch_made: Path | None = None
        self._remove_scratch: weakref.finalize[[str], Child] | None = None
        self._logged_before = 0

    @abstractmethod
    def start(self) -> Self:
        """Start it and return when it is ready, unless it runs."""

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def log(self) -> str:
        """The log of the process since its first start."""
        if self._scratch_made is None or not (self._scratch_made / "log").exists():
            return ""
        return (self._scratch_made / "log").read_text(errors="replace")

    @property
    def _scratch(self) -> Path:
        """A directory until `close`."""
        if self._scratch_made is None:
            self._scratch_made = Path(tempfile.mkdtemp(prefix="ottla-"))
            self._remove_scratch = weakref.finalize(self, _remove, str(self._scratch_made))
        return self._scratch_made

    def _launch(self, command: str, words: Sequence[str]) -> None:
        """Start the process, without waiting for it."""
        ours, theirs = socket.socketpair()
        self._logged_before = len(self.log)
        # -P: it must not import modules from the tests' directory.
        line = [sys.executable, "-P", "-m", "ottla", command, "--supervisor-fd", str(theirs.fileno()), *words]
        with theirs, (self._scratch / "log").open("ab") as log:
            self.process = subprocess.Popen(
                line,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env=ottla_environment(),
                # Its own session: Ctrl-C at the terminal is for the tests, which may need it to clean up.
                start_new_session=True,
            )
        self._lifeline = ours

    def _await_line(self, timeout_s: float) -> bytes:
        """What it tells when it is ready."""
        assert self._lifeline is not None
        assert self.process is not None
        try:
            return self._line(self._lifeline, self.process, timeout_s)
        except BaseException as error:
            self.kill()
            if isinstance(error, self._failed):
                raise self._failed(f"{error}\n{self.log[self._logged_before :].rstrip()}") from None
            raise

    def _line(self, channel: socket.socket, process: subprocess.Popen[bytes], timeout_s: float) -> bytes:
        channel.settimeout(timeout_s)
        line = b""
        while not line.endswith(b"\n"):
            try:
                received = channel.recv(65536)
            except TimeoutError:
                raise self._failed(f"the {self._what} was not ready within {timeout_s:g} s; it logged:") from None
            except ConnectionError:
                received = b""
            if not received:
                code = process.wait(_STOP_TIMEOUT_S)
                raise self._failed(f"the {self._what} did not start (exit code {code}); it logged:")
            line += received
        return line

    def stop(self) -> None:
        """Stop it cleanly, if it runs."""
        if self.process is not None and self.running:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
                text = f"the {self._what} did not stop within {_STOP_TIMEOUT_S:g} s; it logged:\n{self.log}"
                raise self._failed(text) from None
        self._forget()

    def kill(self) -> None:
        """Kill it with SIGKILL, as a crash would."""
        if self.process is not None and self.running:
            self.process.kill()
        self._forget()

    def restart(self) -> Self:
        """Stop it if it runs, and start it again with the same address and data."""
        self.stop()
        return self.start()

    def close(self) -> None:
        """Stop it, and remove what it kept in temporary directories."""
        try:
            self.stop()
        finally:
            if self._remove_scratch is not None:
                self._remove_scratch()
                self._scratch_made = self._remove_scratch = None

    def _forget(self) -> None:
        if self.process is not None:
            self.process.wait()
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()


def ottla_environment() -> dict[str, str]:
    """The environment of this process without settings for brokers (`OTTLA_*`), and with the Ottla that this process runs."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
    root = str(Path(__file__).resolve().parents[2])
    if root not in site.getsitepackages():
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return environment


def _remove(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)
