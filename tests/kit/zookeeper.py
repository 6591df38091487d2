"""One ZooKeeper for a test run, from the jars of Apache Kafka 3.9, with a chroot per test."""

from __future__ import annotations

import contextlib
import shutil
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

from ottla.runtime.free_ports import free_port
from tests.kit.peers import KAFKA_3, halt, kafka_jars, popen
from tests.kit.wait import until


class ZooKeeper:
    """A server process. `address` is host:port; `stop` and `start` again keep its data."""

    def __init__(self, host: str = "127.0.0.1", config: str = "", java: tuple[str, ...] = ()) -> None:
        """`config`: further lines of zoo.cfg. `java`: options of the process."""
        self._java = java
        self.host = host
        self.directory = Path(tempfile.mkdtemp(prefix="ottla-zk-"))
        self.port = free_port()
        self.address = f"{host}:{self.port}"
        self._process: subprocess.Popen[bytes] | None = None
        (self.directory / "zoo.cfg").write_text(
            f"dataDir={self.directory / 'data'}\nclientPort={self.port}\nclientPortAddress={host}\ntickTime=500\n"
            "minSessionTimeout=1000\nmaxSessionTimeout=60000\nmaxClientCnxns=0\nadmin.enableServer=false\n"
            f"4lw.commands.whitelist=*\n{config}"
        )
        (self.directory / "log4j.properties").write_text(
            "log4j.rootLogger=WARN, out\nlog4j.appender.out=org.apache.log4j.ConsoleAppender\n"
            "log4j.appender.out.layout=org.apache.log4j.PatternLayout\nlog4j.appender.out.layout.ConversionPattern=%p %m%n\n"
        )

    def start(self) -> None:
        assert self._process is None
        jars = [
            str(jar)
            for jar in sorted(kafka_jars(KAFKA_3).glob("*.jar"))
            if "slf4j-simple" not in jar.name and "kafka" not in jar.name
        ]
        with (self.directory / "output.log").open("ab") as output:
            command = [
                "java",
                "-Xmx128m",
                "-XX:+UseSerialGC",
                "-XX:TieredStopAtLevel=1",
                # Tests kill the process, never the machine. On a busy disk a flush may take longer than a session.
                "-Dzookeeper.forceSync=no",
                *self._java,
                f"-Dlog4j.configuration=file:{self.directory / 'log4j.properties'}",
                "-cp",
                ":".join(jars),
                "org.apache.zookeeper.server.ZooKeeperServerMain",
                str(self.directory / "zoo.cfg"),
            ]
            self._process = popen(command, here=True, stdout=output, stderr=output)
        self._await()

    def _await(self) -> None:
        def answers() -> bool:
            assert self._process is not None
            if self._process.poll() is not None:
                raise RuntimeError((self.directory / "output.log").read_text()[-2000:])
            return self.ask("ruok") == "imok"

        until(answers, "ZooKeeper starts", every_s=0.05)

    def ask(self, word: str) -> str:
        """The answer to one of ZooKeeper's four-letter words; empty if there is none."""
        with contextlib.suppress(OSError), socket.create_connection((self.host, self.port), 2) as connection:
            connection.sendall(word.encode())
            return connection.makefile().read()
        return ""

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        assert self._process is not None
        halt(self._process)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def close(self) -> None:
        self.stop()
        shutil.rmtree(self.directory, ignore_errors=True)


def served() -> Iterator[ZooKeeper]:
    """A server for the lifetime of a fixture."""
    server = ZooKeeper()
    try:
        server.start()
        yield server
    finally:
        server.close()
