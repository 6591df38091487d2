"""ZooKeeper and brokers as child processes: started, watched, stopped.

Owns the processes and their files in one locked directory (`zookeeper/`, `broker-N/server.properties`, `broker-N/data`, `*.log`).
Prints only through `say`.

1. `stop()` ends all processes: the brokers in turn, each with a controlled shutdown, then ZooKeeper.
2. If this process is killed, its brokers stop because their socket closes, and a guard process ends ZooKeeper after them.
3. A process that ends by itself is reported once. The others go on.
"""

from __future__ import annotations

import fcntl
import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, cast

from ottla.cli.failure import Failure
from ottla.runtime.free_ports import is_free

START_TIMEOUT_S = 120.0
STOP_TIMEOUT_S = 60.0
_POLL_S = 0.1
# Ends ZooKeeper 15 s after this process: the brokers need it for their shutdown.
_GUARD = 'read -r _; sleep 15; kill "$1" 2>/dev/null'

Say = Callable[[str], None]


class Member:
    """A child process and its log."""

    def __init__(self, name: str, command: list[str], log: Path, *, supervised: bool = False) -> None:
        self.name = name
        self.command = command
        self.log = log
        self.channel: socket.socket | None = None
        theirs: socket.socket | None = None
        if supervised:
            self.channel, theirs = socket.socketpair()
            command = [*command, "--supervisor-fd", str(theirs.fileno())]
        try:
            with log.open("ab") as output:
                # Its own session: Ctrl-C at the terminal reaches only this process, which stops the others in order.
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=output,
                    start_new_session=True,
                    pass_fds=[theirs.fileno()] if theirs is not None else [],
                )
        finally:
            if theirs is not None:
                theirs.close()
        self.is_end_reported = False

    @property
    def is_alive(self) -> bool:
        return self.process.poll() is None

    def log_tail(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-5:])

    def how_it_ended(self) -> str:
        code = self.process.poll()
        if code is not None and code < 0:
            return f"{self.name} was killed by {signal.Signals(-code).name}"
        return f"{self.name} exited with code {code}"

    def ready_line(self) -> dict[str, object] | None:
        """The JSON line that a broker writes when it is ready, if it has."""
        assert self.channel is not None
        self.channel.settimeout(_POLL_S)
        try:
            line = self.channel.recv(4096)
        except TimeoutError:
            return None
        return cast(dict[str, object], json.loads(line)) if line else None

    def close(self) -> None:
        if self.channel is not None:
            self.channel.close()
            self.channel = None


class LocalCluster:
    def __init__(self, directory: Path, say: Say) -> None:
        self.command_config: Path | None = None
        """Client properties of an administrator, if the cluster is secured."""
        self.directory = directory
        self.zookeeper: Member | None = None
        self.brokers: dict[int, Member] = {}
        self.addresses: dict[int, str] = {}
        self._say = say
        self._zookeeper_port = 0
        self._guard: subprocess.Popen[bytes] | None = None
        self._lock: IO[str] | None = None

    def hold(self) -> None:
        """Lock the directory until the end of this process. Failure if another cluster has it."""
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = (self.directory / ".lock").open("w")
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Failure(f"another cluster runs in {self.directory}", "stop it, or choose another --data-dir") from None
        except OSError as error:
            raise Failure(f"cannot use {self.directory}: {error.strerror}") from None

    # ZooKeeper

    def start_zookeeper(self, command: list[str], port: int) -> None:
        require_free(port, "ZooKeeper", "--zookeeper-port")
        self._zookeeper_port = port
        self.zookeeper = Member("ZooKeeper", command, self.directory / "zookeeper.log")
        self._guard = subprocess.Popen(
            ["/bin/sh", "-c", _GUARD, "sh", str(self.zookeeper.process.pid)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        self._wait(self.zookeeper, lambda: _ask(port, b"ruok") == b"imok")

    # Brokers

    def start_broker(self, number: int, properties: Mapping[str, str]) -> None:
        """Start the process; `wait_for_brokers` waits until it is ready."""
        directory = self.directory / f"broker-{number}"
        directory.mkdir(exist_ok=True)
        config = directory / "server.properties"
        config.touch(mode=0o600)
        config.chmod(0o600)  # it may have passwords
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        command = [sys.executable, "-P", "-m", "ottla", "serve", "--config", str(config.absolute())]
        self.brokers[number] = Member(f"broker {number}", command, directory / "broker.log", supervised=True)

    def wait_for_brokers(self) -> None:
        for number, member in self.brokers.items():

            def serves(number: int = number, member: Member = member) -> bool:
                line = member.ready_line()
                if line is not None:
                    # The first listener is for clients; a secured cluster has one for brokers too.
                    self.addresses[number] = str(line["bootstrap_servers"]).partition(",")[0]
                return line is not None

            self._wait(member, serves)

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(self.addresses[number] for number in sorted(self.addresses))

    def _wait(self, member: Member, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + START_TIMEOUT_S
        while not condition():
            if not member.is_alive:
                member.is_end_reported = True
                raise Failure(f"{member.name} did not start:\n{member.log_tail()}", f"its log is {member.log}")
            if time.monotonic() > deadline:
                raise Failure(f"{member.name} did not start in {START_TIMEOUT_S:.0f} s", f"its log is {member.log}")
            time.sleep(_POLL_S)

    # Watch

    def report_ended(self) -> None:
        """Report each process that ended since the last call."""
        for number, member in self._members():
            if member.is_alive or member.is_end_reported:
                continue
            member.is_end_reported = True
            self._say(f"{member.how_it_ended()}; the end of its log {member.log}:\n{member.log_tail()}")
            if number is not None:
                config = self.directory / f"broker-{number}" / "server.properties"
                self._say(f"start it again with `ottla serve --config {config}`")
            else:
                self._say(
                    "the brokers serve clients with the present leaders, but no topic, config or leader can change. Start "
                    f"ZooKeeper again with `{shlex.join(member.command)}`"
                )

    def _members(self) -> list[tuple[int | None, Member]]:
        brokers: list[tuple[int | None, Member]] = [*self.brokers.items()]
        return [*brokers, *([(None, self.zookeeper)] if self.zookeeper is not None else [])]

    @property
    def has_brokers(self) -> bool:
        """Whether a broker runs: one of our processes, or one that the user started again at the same address."""
        return any(member.is_alive for member in self.brokers.values()) or any(map(_accepts, self.addresses.values()))

    @property
    def has_zookeeper(self) -> bool:
        return self.zookeeper is not None and self.zookeeper.is_alive

    @property
    def is_zookeeper_used(self) -> bool:
        """Whether our ZooKeeper has a connection besides this one."""
        words = _ask(self._zookeeper_port, b"srvr") if self.has_zookeeper else b""
        counts = [line.split(b":")[1] for line in words.splitlines() if line.startswith(b"Connections:")]
        return any(int(count) > 1 for count in counts)

    # Stop

    def stop(self, *, controller_id: int = -1) -> None:
        """Stop the brokers, the controller last: it elects new leaders for the partitions of the others. Then stop ZooKeeper."""
        for number in sorted(self.brokers, key=lambda number: (number == controller_id, number)):
            self._end(self.brokers[number])
        if self.zookeeper is not None:
            self._end(self.zookeeper)
        self._end_guard()

    def kill(self) -> None:
        for _, member in self._members():
            if member.is_alive:
                member.process.kill()
            member.process.wait()
            member.close()
        self._end_guard()

    def _end(self, member: Member) -> None:
        if member.is_alive:
            member.is_end_reported = True
            member.process.send_signal(signal.SIGTERM)
            try:
                member.process.wait(STOP_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._say(f"{member.name} did not stop in {STOP_TIMEOUT_S:.0f} s; killing it")
                member.process.kill()
                member.process.wait()
        member.close()

    def _end_guard(self) -> None:
        if self._guard is not None:
            # Its whole session: the shell may run `sleep`.
            os.killpg(self._guard.pid, signal.SIGKILL)
            self._guard.wait()
            if self._guard.stdin is not None:
                self._guard.stdin.close()
            self._guard = None


def require_free(port: int, whose: str, option: str) -> None:
    if not is_free(port):
        raise Failure(f"port {port} of {whose} is in use", f"choose another with {option}")


def _accepts(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), 2):
            return True
    except OSError:
        return False


def _ask(port: int, word: bytes) -> bytes:
    """ZooKeeper's answer to a four-letter word, or nothing if it does not answer."""
    try:
        with socket.create_connection(("127.0.0.1", port), 2) as connection:
            connection.sendall(word)
            return b"".join(iter(lambda: connection.recv(4096), b""))
    except OSError:
        return b""
