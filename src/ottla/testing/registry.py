"""A schema registry as a child process, on a broker that runs already.

1. When `start` returns, the registry answers: it reports over a socket pair that its port is open.
2. The child ends with this process, also if that is killed: it watches the socket pair.
3. A restart keeps the address. The schemas are in the broker.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType

from ottla.runtime.free_ports import free_port
from ottla.testing.broker import Broker, ottla_environment

_STOP_TIMEOUT_S = 30.0


class RegistryFailed(Exception):
    """The registry did not start. The message includes its log."""


class Registry:
    """`with Registry(broker) as registry: SchemaRegistryClient({"url": registry.url})`.

    `properties` are client properties for the broker, by the names of Java's clients. A secured `Broker` brings its own.
    """

    def __init__(
        self,
        broker: Broker | str,
        *,
        properties: Mapping[str, str] | None = None,
        options: Sequence[str] = (),
        scheme: str = "http",
        start_timeout_s: float = 60.0,
    ) -> None:
        self._broker = broker
        self._properties = dict(properties or {})
        self._options = list(options)
        self._start_timeout_s = start_timeout_s
        self._port = free_port()
        self.url = f"{scheme}://127.0.0.1:{self._port}"
        self.process: subprocess.Popen[bytes] | None = None
        self._lifeline: socket.socket | None = None
        self._scratch = tempfile.TemporaryDirectory(prefix="ottla-registry-")

    @property
    def log(self) -> str:
        """The log of the registry since its first start."""
        path = Path(self._scratch.name, "log")
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def launch(self) -> Registry:
        """Start the process, without waiting for it."""
        ours, theirs = socket.socketpair()
        file = Path(self._scratch.name, "client.properties")
        file.touch(mode=0o600)
        file.write_text("".join(f"{name}={value}\n" for name, value in self._client_properties().items()))
        words = ["--listen", f"127.0.0.1:{self._port}", "--command-config", str(file), "--supervisor-fd", str(theirs.fileno())]
        # -P: the registry must not import modules from the tests' directory.
        command = [sys.executable, "-P", "-m", "ottla", "registry", "-b", self._bootstrap_servers(), *words, *self._options]
        with theirs, Path(self._scratch.name, "log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env=ottla_environment(),
                start_new_session=True,
            )
        self._lifeline = ours
        return self

    def await_ready(self) -> Registry:
        assert self._lifeline is not None
        assert self.process is not None
        self._lifeline.settimeout(self._start_timeout_s)
        try:
            line = self._lifeline.recv(4096)
        except OSError:
            line = b""
        if not line:
            self.kill()
            raise RegistryFailed(f"the registry did not start (exit code {self.process.returncode}); it logged:\n{self.log}")
        return self

    def start(self) -> Registry:
        """Start the registry and return when it answers. RegistryFailed if it does not start."""
        return self if self.running else self.launch().await_ready()

    def stop(self) -> None:
        """Stop the registry cleanly, if it runs."""
        if self.running:
            assert self.process is not None
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise RegistryFailed(f"the registry did not stop; it logged:\n{self.log}") from None
        self._forget()

    def kill(self) -> None:
        """Kill the registry with SIGKILL, as a crash would."""
        if self.running:
            assert self.process is not None
            os.kill(self.process.pid, signal.SIGKILL)
            self.process.wait()
        self._forget()

    def restart(self) -> Registry:
        self.stop()
        return self.start()

    def close(self) -> None:
        try:
            self.stop()
        finally:
            self._scratch.cleanup()

    def _forget(self) -> None:
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None

    def _bootstrap_servers(self) -> str:
        return self._broker if isinstance(self._broker, str) else self._broker.bootstrap_servers

    def _client_properties(self) -> dict[str, str]:
        secured = {} if isinstance(self._broker, str) else self._broker.client_properties()
        secured.pop("bootstrap.servers", None)
        return secured | self._properties

    def __enter__(self) -> Registry:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Registry {self.url}{'' if self.running else ', not running'}>"
