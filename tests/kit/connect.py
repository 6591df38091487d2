"""Kafka Connect in distributed mode: workers of one group, with connectors from Maven Central."""

from __future__ import annotations

import json
import subprocess
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.kit.peers import KAFKA_4, java_command, popen
from tests.kit.wait import until

PATIENCE_S = 300.0


class Workers:
    """A group of workers, with their files in `path`."""

    def __init__(self, servers: str, path: Path, name: str, jars: Sequence[Path], settings: Mapping[str, str]) -> None:
        self._servers, self._path, self._name, self._jars, self._settings = servers, path, name, jars, settings
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
            **self._settings,
        }
        file = self._path / f"worker-{port}.properties"
        file.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        command = java_command(KAFKA_4, "org.apache.kafka.connect.cli.ConnectDistributed", str(file), jars=self._jars)
        with (self._path / f"worker-{port}.log").open("ab") as log:
            self._running[port] = popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

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
def connect_group(
    servers: str, path: Path, name: str, jars: Sequence[Path] = (), settings: Mapping[str, str] | None = None
) -> Iterator[Workers]:
    """Workers, none of which is started yet. `jars` hold the connectors, `settings` change those of the workers."""
    workers = Workers(servers, path, name, jars, settings or {})
    try:
        yield workers
    finally:
        workers.close()
