"""The thread that publishes a run: at most once a second for each flow, and as a heartbeat if nothing changed. It also reads
whether somebody asks the run to stop.

It has a client of its own with short timeouts. A broker that refuses or is away costs a line in the log: the flows never wait for
this thread, and no error leaves it.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from ottla.client.blocking import BrokerAway, Client
from ottla.client.options import ClientOptions
from ottla.errors import ErrorCode, KafkaError
from ottla.pipelines.published import requests, topic
from ottla.pipelines.published.documents import HEARTBEAT_INTERVAL_MS, Run, now_ms

_TICK_S = 1.0
_TIMEOUT_MS = 5_000
_PAUSE_S = 5.0
"""After an error."""
_CLOSE_TIMEOUT_S = 6.0

logger = logging.getLogger("ottla.pipelines")

Flows = Callable[[BaseException | None], Mapping[str, dict[str, Any]]]
"""The documents of all flows now; called with the error that ended the run, if one did."""


class Publisher:
    """`with Publisher(options, run, flows): ...` publishes until the end of the block, then the last state.

    `stop` is called, once, with the name of the one who asks the run to stop.
    """

    def __init__(self, options: ClientOptions, run: Run, flows: Flows, stop: Callable[[str], object] = lambda by: None) -> None:
        self._options = replace(
            options, request_timeout_ms=_TIMEOUT_MS, api_timeout_ms=_TIMEOUT_MS, connect_timeout_ms=_TIMEOUT_MS
        )
        self._run, self._flows, self._stop = run, flows, stop
        self._requests: topic.Reader | None = None
        self._listens = True
        self._error: BaseException | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._publish_until_closed, name="publish-pipeline", daemon=True)
        self._client: Client | None = None
        self._plan_is_published = False
        self._published: dict[str, tuple[dict[str, Any], float]] = {}
        self._pause_until = 0.0
        self._is_away = False

    def __enter__(self) -> Publisher:
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: object) -> None:
        self._error = error
        self._closing.set()
        self._thread.join(_CLOSE_TIMEOUT_S)

    def _publish_until_closed(self) -> None:
        try:
            while True:
                closing = self._closing.is_set()
                if time.monotonic() >= self._pause_until:
                    self._publish()
                    if self._listens and not closing:
                        self._listen()
                if closing:
                    return
                self._closing.wait(_TICK_S)
        finally:
            self._disconnect()

    def _publish(self) -> None:
        due = self._due()
        if not due and self._plan_is_published:
            return
        try:
            self._append(due)
        except (BrokerAway, KafkaError, OSError) as error:
            self._failed(error)
        else:
            self._succeeded(due)

    def _due(self) -> dict[str, dict[str, Any]]:
        """The flows that changed, or whose heartbeat is due."""
        now = time.monotonic()
        found = {}
        for flow, document in self._flows(self._error).items():
            before, at = self._published.get(flow, (None, 0.0))
            if document != before or now - at >= HEARTBEAT_INTERVAL_MS / 1000:
                found[flow] = document
        return found

    def _append(self, due: Mapping[str, dict[str, Any]]) -> None:
        if self._client is None:
            self._client = Client(self._options)
        name = self._run.project.name
        records: dict[str, str | None] = {}
        if not self._plan_is_published:
            topic.ensure(self._client)
            self._begin_to_listen(self._client)
            records[name] = json.dumps(self._run.plan_document())
        heartbeat = {"heartbeat_ms": now_ms(), "heartbeat_interval_ms": HEARTBEAT_INTERVAL_MS}
        for flow, document in due.items():
            records[f"{name}/{flow}"] = json.dumps({**document, **heartbeat})
        topic.append(self._client, records)

    def _begin_to_listen(self, client: Client) -> None:
        """Before the plan tells the id of the run: nobody can have asked it anything yet."""
        if not self._listens:
            return
        try:
            if self._requests is None:
                self._requests = topic.Reader(client, from_end=True)
            self._requests.client = client
        except KafkaError as error:
            self._cannot_listen(error)

    def _listen(self) -> None:
        if self._client is None or self._requests is None:
            return
        try:
            latest = self._requests.poll()
        except KafkaError as error:
            if error.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._cannot_listen(error)
            else:
                self._failed(error)
        except (BrokerAway, OSError) as error:
            self._failed(error)
        else:
            by = requests.stop_asked_by(latest, self._run.project.name, self._run.run_id)
            if by is not None:
                self._listens = False
                logger.info("Pipeline %s: %s asks it to stop", self._run.project.name, by)
                self._stop(by)

    def _cannot_listen(self, error: KafkaError) -> None:
        self._listens = False
        logger.info("Pipeline %s cannot be stopped through %s: %s", self._run.project.name, topic.TOPIC, error)

    def _succeeded(self, due: Mapping[str, dict[str, Any]]) -> None:
        now = time.monotonic()
        self._plan_is_published = True
        self._published.update({flow: (document, now) for flow, document in due.items()})
        if self._is_away:
            self._is_away = False
            logger.info("Progress is published to %s again", topic.TOPIC)

    def _failed(self, error: Exception) -> None:
        """Begin anew after a pause. The topic may be gone, so the plan is published again."""
        self._disconnect()
        self._plan_is_published = False
        self._pause_until = time.monotonic() + _PAUSE_S
        if not self._is_away:
            self._is_away = True
            logger.warning(
                "Cannot publish progress to %s: %s. The flows are not affected; publish = false in [pipeline] turns it off",
                topic.TOPIC,
                error,
            )

    def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            client.close()
