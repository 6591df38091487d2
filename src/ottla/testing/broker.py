"""A broker as a child process.

Invariants
1. When `start` returns, the broker answers clients: it reports over a socket pair that it is ready. Nothing is polled.
2. The child ends with this process, also if that is killed: it watches the socket pair.
3. A restart keeps address and data. The port is below the system's ephemeral range, where no outgoing connection can take it
   while the broker is down. (In that range a client that retries could even connect to itself.)
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import site
import socket
import subprocess
import sys
import tempfile
import weakref
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from ottla.runtime.free_ports import free_port, is_free
from ottla.testing.security import Security

_PORT_TRIES = 100
_STOP_TIMEOUT_S = 30.0

Value = str | int | float | bool | Iterable[str]


class BrokerFailed(Exception):
    """The broker did not start, or ended by itself. The message includes its log."""


class Broker:
    """A broker for tests, with settings by Kafka's names (`{"num.partitions": 3}`) or as keywords (`num_partitions=3`).

    Data is in `data_dir`, which is kept, or in a temporary directory, which is removed. `security` is a protocol ("SASL_SSL") or
    a `Security`; clients then need `client_config`.
    """

    def __init__(
        self,
        config: Mapping[str, Value] | None = None,
        *,
        data_dir: str | os.PathLike[str] | None = None,
        start_timeout_s: float = 60.0,
        security: str | Security | None = None,
        **settings: Value,
    ) -> None:
        self.security = Security(security) if isinstance(security, str) else security
        self.settings = {name: _text(value) for name, value in (config or {}).items()}
        self.settings.update({name.replace("_", "."): _text(value) for name, value in settings.items()})
        self.start_timeout_s = start_timeout_s
        self.process: subprocess.Popen[bytes] | None = None
        self.data_dir = Path(data_dir) if data_dir is not None else None
        self._bootstrap_servers = ""
        self._listeners: list[str] = []
        """The bound listeners, with their ports. A restart uses the same."""
        self._port = 0
        """The port that the last start tried, if no listeners are given."""
        self._lifeline: socket.socket | None = None
        self._scratch: Path | None = None
        self._remove_scratch: weakref.finalize[[str], Broker] | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port` for clients. Known after the first start, and the same after a restart."""
        if not self._bootstrap_servers:
            raise RuntimeError("the broker was not started")
        return self._bootstrap_servers

    @property
    def log(self) -> str:
        """The log of the broker since its first start."""
        if self._scratch is None or not (self._scratch / "log").exists():
            return ""
        return (self._scratch / "log").read_text(errors="replace")

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self) -> Broker:
        """Start the broker and return when it is ready. BrokerFailed if it does not start."""
        if self.running:
            return self
        if self._scratch is None:
            self._scratch = Path(tempfile.mkdtemp(prefix="ottla-"))
            self._remove_scratch = weakref.finalize(self, _remove, str(self._scratch))
        if self.data_dir is None:
            self.data_dir = self._scratch / "data"
        given = bool(self._listeners) or "listeners" in self.settings
        for attempt in range(_PORT_TRIES):
            try:
                self._start_once()
                return self
            except BrokerFailed as failure:
                # Another process took the port after `free_port` found it: try another.
                if given or is_free(self._port) or attempt == _PORT_TRIES - 1:
                    raise failure
        raise AssertionError

    def _start_once(self) -> None:
        assert self._scratch is not None
        ours, theirs = socket.socketpair()
        settings = {"log.dirs": str(self.data_dir), **self._secured(), **self.settings}
        if self._listeners:
            settings["listeners"] = ",".join(self._listeners)
        elif "listeners" not in settings:
            try:
                self._port = free_port()
            except OSError as error:
                raise BrokerFailed(error.strerror) from error
            protocol = self.security.protocol if self.security is not None else "PLAINTEXT"
            settings["listeners"] = f"{protocol}://127.0.0.1:{self._port}"
        words = [word for name, value in settings.items() for word in ("--set", f"{name}={value}")]
        # -P: the broker must not import modules from the tests' directory.
        command = [sys.executable, "-P", "-m", "ottla", "serve", "--supervisor-fd", str(theirs.fileno()), *words]
        logged_before = len(self.log)
        with theirs, (self._scratch / "log").open("ab") as log:
            self.process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                pass_fds=[theirs.fileno()],
                env=ottla_environment(),
                # Its own session: Ctrl-C at the terminal is for the tests, which may need the broker to clean up.
                start_new_session=True,
            )
        self._lifeline = ours
        try:
            ready = self._wait_until_ready(ours)
        except BaseException as error:
            self.kill()
            if isinstance(error, BrokerFailed):
                raise BrokerFailed(f"{error}\n{self.log[logged_before:].rstrip()}") from None
            raise
        self._listeners = list(ready["listeners"])
        self._bootstrap_servers = str(ready["bootstrap_servers"])

    def _secured(self) -> dict[str, str]:
        if self.security is None:
            return {}
        self._security_folder.mkdir(mode=0o700, exist_ok=True)
        return self.security.write(self._security_folder)

    @property
    def _security_folder(self) -> Path:
        """With the data: a broker that starts again on its data has the same users and certificates."""
        assert self.data_dir is not None, "the broker was not started"
        self.data_dir.mkdir(parents=True, exist_ok=True)
        return self.data_dir.parent / f"{self.data_dir.name}-security"

    def client_properties(self, user: str = "admin", mechanism: str | None = None) -> dict[str, str]:
        """Client properties with the names of Java's clients: address, and the login of a user of `security`."""
        secured = self.security.client_properties(self._security_folder, user, mechanism) if self.security is not None else {}
        return {"bootstrap.servers": self.bootstrap_servers, **secured}

    def client_config(self, user: str = "admin", mechanism: str | None = None) -> dict[str, Any]:
        """The same for confluent-kafka: `Producer(broker.client_config("alice"))`."""
        secured = self.security.client_config(self._security_folder, user, mechanism) if self.security is not None else {}
        return {"bootstrap.servers": self.bootstrap_servers, **secured}

    def _wait_until_ready(self, channel: socket.socket) -> dict[str, Any]:
        channel.settimeout(self.start_timeout_s)
        line = b""
        while not line.endswith(b"\n"):
            try:
                received = channel.recv(65536)
            except TimeoutError:
                raise BrokerFailed(f"the broker was not ready within {self.start_timeout_s:g} s; it logged:") from None
            except ConnectionError:
                received = b""
            if not received:
                assert self.process is not None
                code = self.process.wait(_STOP_TIMEOUT_S)
                raise BrokerFailed(f"the broker did not start (exit code {code}); it logged:")
            line += received
        document: dict[str, Any] = json.loads(line)
        return document

    def stop(self) -> None:
        """Stop the broker cleanly, if it runs."""
        if self.process is not None and self.running:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(_STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise BrokerFailed(f"the broker did not stop within {_STOP_TIMEOUT_S:g} s; it logged:\n{self.log}") from None
        self._forget()

    def kill(self) -> None:
        """Kill the broker with SIGKILL, as a crash would."""
        if self.process is not None and self.running:
            self.process.kill()
            self.process.wait()
        self._forget()

    def restart(self) -> Broker:
        """Stop the broker if it runs, and start it again with the same address and data."""
        self.stop()
        return self.start()

    def _forget(self) -> None:
        if self.process is not None:
            self.process.wait()
        if self._lifeline is not None:
            self._lifeline.close()
            self._lifeline = None

    def close(self) -> None:
        """Stop the broker, and remove its data unless `data_dir` was given."""
        try:
            self.stop()
        finally:
            if self._remove_scratch is not None:
                self._remove_scratch()
                self._scratch = self._remove_scratch = None

    def create_topic(self, name: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        from confluent_kafka.admin import AdminClient, NewTopic

        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(config or {}))
        # Kept in a variable: the library cancels the request when the client is garbage.
        admin = AdminClient(self._client())
        admin.create_topics([topic], operation_timeout=30)[name].result(30)

    def delete_topic(self, name: str, *, if_exists: bool = False) -> None:
        from confluent_kafka import KafkaError, KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient(self._client())
        try:
            admin.delete_topics([name], operation_timeout=30)[name].result(30)
        except KafkaException as exception:
            if not if_exists or exception.args[0].code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                raise

    def _client(self) -> dict[str, Any]:
        if not self.running:
            raise BrokerFailed(f"the broker is not running; it logged:\n{self.log}".rstrip())
        return {**self.client_config(), "log_level": 0}

    def __enter__(self) -> Broker:
        try:
            return self.start()
        except BaseException:
            self.close()
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Broker {self.bootstrap_servers if self._listeners else 'not started'}{'' if self.running else ', not running'}>"


def _text(value: Value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str | int | float):
        return str(value)
    return ",".join(value)


def ottla_environment() -> dict[str, str]:
    """The environment of this process without settings for brokers (`OTTLA_*`), and with the Ottla that this process runs."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("OTTLA_")}
    root = str(Path(__file__).resolve().parents[2])
    if root not in site.getsitepackages():
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, [root, os.environ.get("PYTHONPATH")]))
    return environment


def _remove(path: str) -> None:
    shutil.rmtree(path, ignore_errors=True)
