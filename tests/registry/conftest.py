"""A registry on a broker of its own for each module, and a client that says what it got."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from ottla.testing import Broker, Registry

V1 = "application/vnd.schemaregistry.v1+json"


class Client:
    """Requests to a registry. A call returns the status and the document."""

    def __init__(self, url: str, **options: Any) -> None:
        self.http = httpx.Client(base_url=url, timeout=60, headers={"content-type": V1}, **options)

    def call(self, method: str, path: str, document: object = None, **options: Any) -> tuple[int, Any]:
        content = None if document is None else json.dumps(document)
        answer = self.http.request(method, path, content=content, **options)
        return answer.status_code, answer.json() if answer.content else None

    def get(self, path: str, **options: Any) -> Any:
        status, document = self.call("GET", path, **options)
        assert status == 200, (path, status, document)
        return document

    def register(self, subject: str, schema: object, *, path: str = "", **fields: Any) -> int:
        """Register and return the id."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        status, document = self.call("POST", f"{path}/subjects/{subject}/versions", {"schema": text, **fields})
        assert status == 200, (subject, status, document)
        return int(document["id"])

    def error(self, method: str, path: str, document: object = None, **options: Any) -> int:
        """The error code of a request that is refused."""
        status, answer = self.call(method, path, document, **options)
        assert set(answer) == {"error_code", "message"}, answer
        code = int(answer["error_code"])
        assert status == (code if code < 1000 else code // 100), (status, answer)
        return code


@pytest.fixture(scope="session")
def broker() -> Iterator[Broker]:
    with Broker({"group.initial.rebalance.delay.ms": 0, "offsets.topic.num.partitions": 1}) as broker:
        yield broker


@pytest.fixture(scope="session")
def registry(broker: Broker) -> Iterator[Registry]:
    with Registry(broker) as registry:
        yield registry


@pytest.fixture
def client(registry: Registry) -> Iterator[Client]:
    client = Client(registry.url)
    with client.http:
        yield client


@pytest.fixture
def subject() -> str:
    """A subject that no other test uses."""
    return f"s-{uuid.uuid4().hex[:12]}"
