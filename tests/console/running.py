"""A console as a user starts it, and calls to it that check the answers against its own description."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import jsonschema

from ottla.console.api import ENDPOINTS
from ottla.console.openapi import ERROR, description
from tests.kit.ottla_command import Ottla
from tests.kit.wait import until

Event = tuple[str, dict[str, Any]]
TIMEOUT_S = 60.0


@dataclass
class RunningConsole:
    url: str
    process: subprocess.Popen[bytes]
    headers: dict[str, str] = field(default_factory=dict)
    description: dict[str, Any] = field(default_factory=lambda: description(ENDPOINTS))

    def request(self, method: str, path: str, body: Mapping[str, Any] | None = None, /, **headers: str) -> httpx.Response:
        content = {} if method == "GET" else {"content": json.dumps(body or {}), "headers": {"content-type": "application/json"}}
        sent = {**content.pop("headers", {}), **self.headers, **headers}  # type: ignore[dict-item]
        return httpx.request(method, self.url + path, headers=sent, timeout=TIMEOUT_S, **content)  # type: ignore[arg-type]

    def call(self, method: str, path: str, body: Mapping[str, Any] | None = None, /, **headers: str) -> Any:
        """The answer, which fits its description."""
        answer = self.request(method, path, body, **headers)
        assert answer.status_code < 300, f"{method} {path}: {answer.status_code} {answer.text}"
        found = answer.json()
        jsonschema.validate(found, self.schema_of(method, path, answer.status_code))
        return found

    def get(self, path: str, **headers: str) -> Any:
        return self.call("GET", path, None, **headers)

    def post(self, path: str, body: Mapping[str, Any] | None = None, /, **headers: str) -> Any:
        return self.call("POST", path, body, **headers)

    def refused(
        self, method: str, path: str, status: int, body: Mapping[str, Any] | None = None, /, **headers: str
    ) -> dict[str, Any]:
        """The error of a request that is refused with this status."""
        answer = self.request(method, path, body, **headers)
        assert answer.status_code == status, f"{method} {path}: {answer.status_code} {answer.text}"
        jsonschema.validate(answer.json(), ERROR)
        error: dict[str, Any] = answer.json()["error"]
        return error

    def schema_of(self, method: str, path: str, status: int) -> dict[str, Any]:
        operation = self.operation(method, path)
        content: dict[str, Any] = operation["responses"][str(status)]["content"]
        (found,) = content.values()
        schema: dict[str, Any] = found["schema"]
        return schema

    def operation(self, method: str, path: str) -> dict[str, Any]:
        """What the description says of a call. A path without parameters comes before one with."""
        plain = path.partition("?")[0]
        for template in sorted(self.description["paths"], key=lambda each: each.count("{")):
            pattern = re.sub(r"\\{\w+\\}", "[^/]+", re.escape(template))
            operation = self.description["paths"][template].get(method.lower())
            if operation is not None and re.fullmatch(pattern, plain):
                found: dict[str, Any] = operation
                return found
        raise AssertionError(f"{method} {plain} is not described")

    @contextmanager
    def events(self, path: str) -> Iterator[Iterator[Event]]:
        """The events of a stream, as they come."""
        with httpx.stream("GET", self.url + path, headers=self.headers, timeout=TIMEOUT_S) as answer:
            if answer.status_code != 200:
                answer.read()
                raise AssertionError(f"{path}: {answer.status_code} {answer.text}")
            assert answer.headers["content-type"].startswith("text/event-stream")
            yield _events(answer)

    def all_events(self, path: str) -> list[Event]:
        """The events of a stream up to its end."""
        with self.events(path) as events:
            return list(events)

    def records(self, path: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """The records that a search finds, and its end."""
        events = self.all_events(path)
        assert events[-1][0] == "end", events[-1]
        found = [record for name, document in events if name == "records" for record in document["records"]]
        return found, events[-1][1]


def _events(answer: httpx.Response) -> Iterator[Event]:
    name = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            name = line[7:]
        elif line.startswith("data: "):
            yield name, json.loads(line[6:])


@contextmanager
def running_console(bootstrap_servers: str, *words: str, listen: str = "127.0.0.1:0") -> Iterator[RunningConsole]:
    ottla = Ottla(bootstrap_servers)
    command = ottla.command("console", "--listen", listen, *words)
    # Its log goes to a file: a console whose pipe nobody reads stops at a line of its audit.
    with (
        tempfile.NamedTemporaryFile() as log,
        subprocess.Popen(command, stderr=log, env=ottla.environment) as process,
    ):

        def url() -> str | None:
            text = Path(log.name).read_text()
            assert process.poll() is None, text
            found = re.search(r"Console of \S+ at (https?://\S+)\n", text)
            return found[1] if found else None

        try:
            yield RunningConsole(until(url, "the console listens", every_s=0.005), process)
            process.send_signal(signal.SIGTERM)
            assert process.wait(TIMEOUT_S) == 0, Path(log.name).read_text()
        finally:
            process.kill()
