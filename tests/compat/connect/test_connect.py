"""Kafka Connect in a group of workers (F66): lines of a file reach another file exactly once, while workers are killed.

Workers find each other by a group of their own protocol, keep configurations, states and offsets in three compacted topics, and
with `exactly.once.source.support` write what a source says, and how far it has been read, in one transaction; who takes over a
task fences its former worker. The REST interface stops a connector, and puts its offsets back.
"""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.kit.peers import KAFKA_4, free_ports, java_command, single_jars
from tests.kit.subject import Subject
from tests.kit.wait import until

pytestmark = [pytest.mark.java, pytest.mark.slow]

FILE_CONNECTORS = (f"org.apache.kafka:connect-file:{KAFKA_4}",)
PATIENCE_S = 300.0


class Workers:
    def __init__(self, servers: str, path: Path, name: str) -> None:
        self._servers, self._path, self._name = servers, path, name
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, port: int) -> None:
        settings = {
            "bootstrap.servers": self._servers,
            "group.id": self._name,
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            **{f"{kind}.storage.topic": f"{self._name}-{kind}" for kind in ("offset", "config", "status")},
            **{f"{kind}.storage.replication.factor": "1" for kind in ("offset", "config", "status")},
            "offset.flush.interval.ms": "1000",
            "exactly.once.source.support": "enabled",
            "scheduled.rebalance.max.delay.ms": "2000",
            "connector.client.config.override.policy": "All",
            "listeners": f"http://127.0.0.1:{port}",
        }
        file = self._path / f"worker-{port}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        jars = single_jars("kafka-connect", FILE_CONNECTORS)
        command = java_command(KAFKA_4, "org.apache.kafka.connect.cli.ConnectDistributed", str(file), jars=jars)
        with (self._path / f"worker-{port}.log").open("ab") as log:
            self._running[port] = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def kill(self, port: int) -> None:
        process = self._running.pop(port)
        process.kill()
        process.wait()

    def close(self) -> None:
        for port in list(self._running):
            self.kill(port)

    def call(self, method: str, port: int, path: str, body: object = None) -> int:
        """The status of the answer; 0 if there is none yet."""
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"http://127.0.0.1:{port}{path}", method=method, data=data, headers={"Content-Type": "application/json"}
        )
        try:
            with urllib.request.urlopen(request, timeout=90) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code  # 409 while the workers rebalance
        except OSError:
            return 0

    def insist(self, method: str, port: int, path: str, body: object = None) -> None:
        statuses: list[int] = []

        def done() -> bool:
            statuses.append(self.call(method, port, path, body))
            return 200 <= statuses[-1] < 300

        self.wait(done, lambda: f"{method} {path}: {statuses[-5:]}")

    def wait(self, condition: Callable[[], bool], what: Callable[[], str]) -> None:
        def said() -> str:
            return "\n".join([what(), *(log.read_text()[-1500:] for log in sorted(self._path.glob("*.log")))])

        until(condition, said, PATIENCE_S, every_s=0.3)


@contextmanager
def group_of(servers: str, path: Path, name: str) -> Iterator[Workers]:
    workers = Workers(servers, path, name)
    try:
        yield workers
    finally:
        workers.close()


def test_lines_arrive_exactly_once_though_workers_are_killed(subject: Subject, tmp_path: Path) -> None:
    lines, copy = tmp_path / "lines", tmp_path / "copy"
    written = 0

    def write(count: int) -> None:
        nonlocal written
        with lines.open("a") as file:
            file.writelines(f"line-{number}\n" for number in range(written, written + count))
        written += count

    def arrived() -> Counter[str]:
        return Counter(copy.read_text().split()) if copy.exists() else Counter()

    name = f"connect-{tmp_path.name}"
    source = {
        "connector.class": "FileStreamSource",
        "file": str(lines),
        "topic": f"{name}-lines",
        "exactly.once.support": "required",
    }
    sink = {
        "connector.class": "FileStreamSink",
        "file": str(copy),
        "topics": f"{name}-lines",
        "consumer.override.isolation.level": "read_committed",
    }
    one, two = free_ports(2)
    write(500)
    with group_of(subject.bootstrap_servers, tmp_path, name) as workers:
        workers.start(one)
        workers.insist("PUT", one, "/connectors/source/config", source)
        workers.wait(lambda: workers.call("GET", one, "/connectors/source/offsets") == 200, lambda: "no offsets")
        workers.start(two)
        workers.insist("GET", two, "/connectors")
        for port, other in ((one, two), (two, one)):
            # In the midst of it, whichever of them has the task; the other takes it over and fences it.
            write(500)
            workers.kill(port)
            write(500)
            workers.insist("GET", other, "/connectors/source/status")
            workers.start(port)
            workers.insist("GET", port, "/connectors")
        workers.insist("PUT", one, "/connectors/sink/config", sink)
        workers.wait(lambda: len(arrived()) >= written, lambda: f"{len(arrived())} of {written} lines")
        assert arrived() == Counter(f"line-{number}" for number in range(written))
        # Put back to the beginning, the sink reads it all once more.
        workers.insist("PUT", one, "/connectors/sink/stop")
        workers.insist("DELETE", one, "/connectors/sink/offsets")
        workers.insist("PUT", one, "/connectors/sink/resume")
        workers.wait(lambda: arrived().total() >= 2 * written, lambda: f"{arrived().total()} of {2 * written} lines")
        assert set(arrived().values()) == {2}
