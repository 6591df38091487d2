"""What pipelines have published of their plan and progress, read on from where the last look ended."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any, Final

from ottla.cli.connection import Connection
from ottla.cli.failure import Failure
from ottla.client.blocking import BrokerAway, Client
from ottla.errors import KafkaError

if TYPE_CHECKING:
    from ottla.pipelines.published.topic import Reader

_FRESH_S: Final = 0.9


class Published:
    """Several threads may ask; one of them reads."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._reader: Reader | None = None
        self._read_s = float("-inf")
        self._found: list[dict[str, Any]] = []

    def documents(self) -> list[dict[str, Any]]:
        """All pipelines, as `ottla pipeline status --all` tells them. Blocking."""
        with self._lock:
            if time.monotonic() - self._read_s >= _FRESH_S:
                self._found = self._read()
                self._read_s = time.monotonic()
            return self._found

    def document(self, name: str) -> dict[str, Any]:
        for each in self.documents():
            if each["pipeline"] == name:
                return each
        raise Failure(f"pipeline {name} has published nothing to this cluster", "run it once with this cluster", code="NOT_FOUND")

    def _read(self) -> list[dict[str, Any]]:
        # Pipelines are a third of the console's imports: it starts without them.
        from ottla.cli.pipeline.published import client_of, pipeline_document
        from ottla.pipelines.published.documents import now_ms
        from ottla.pipelines.published.topic import Reader
        from ottla.pipelines.published.view import pipelines

        try:
            if self._client is None or self._reader is None:
                self._client = client_of(self._connection)
                self._reader = Reader(self._client)
            latest = self._reader.poll()
        except (BrokerAway, KafkaError) as error:
            self._drop()
            code = error.code.name if isinstance(error, KafkaError) else "BROKER_AWAY"
            raise Failure(str(error), code=code) from None
        now = now_ms()
        return [pipeline_document(each, now) for each in pipelines(latest)]

    def close(self) -> None:
        with self._lock:
            self._drop()

    def _drop(self) -> None:
        if self._client is not None:
            self._client.close()
        self._client = self._reader = None
