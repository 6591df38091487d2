"""A broker asked without a socket, with the short cut of an API or without it: whether both say the same."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from ottla.broker.app import Broker
from ottla.broker.connection import Connection
from ottla.broker.dispatch import PendingReply, Usual
from ottla.broker.socket_server import ListenerUse
from ottla.cluster.requests import NewTopic
from ottla.cluster.settings import BrokerSettings
from ottla.errors import MalformedInput
from ottla.metrics import Counters
from ottla.ports import Clock
from ottla.runtime.clock import SystemClock
from ottla.runtime.loop import ThreadWorkers, real_world

NOW_MS = 1_700_000_000_000
NOBODYS_ID = bytes(range(16))


class StoppedClock(SystemClock):
    def now_ms(self) -> int:
        return NOW_MS


@contextlib.asynccontextmanager
async def started(
    path: Path, topics: Iterable[NewTopic], settings: Mapping[str, str] | None = None, *, clock: Clock | None = None
) -> AsyncIterator[Broker]:
    """A broker of its own; one whose clock stands still writes the same as its twin."""
    parsed = BrokerSettings.parse(
        {"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(path), "broker.id": "1", **(settings or {})}
    )
    world = dataclasses.replace(real_world(Counters(), parsed), clock=clock or SystemClock())
    broker = Broker(parsed, world)
    await broker.start()
    try:
        await broker.controller.create_topics(list(topics))
        yield broker
    finally:
        await broker.stop()
        if isinstance(world.workers, ThreadWorkers):
            world.workers.close()


class Asked:
    def __init__(self, broker: Broker, short_cut: Callable[..., Any] | None) -> None:
        """`short_cut` is the API's own, or None to go the long way."""
        self.broker = broker
        self.taken = 0
        """How often the short cut answered."""
        self._short_cut = short_cut
        self._dispatcher: Any = broker.server.dispatch.__self__

    def topic_id(self, name: str) -> bytes:
        topic = self.broker.image.topics.get(name)
        return topic.topic_id if topic is not None else NOBODYS_ID

    def ask(self, frame: bytes) -> list[Any] | PendingReply | str | None:
        """The reply in its parts, one that waits, that the connection is closed, or None for no reply."""
        connection = Connection(self.broker.server, ListenerUse("x"))
        data = memoryview(bytearray(frame))  # what a broker receives it may write to
        try:
            found = self._dispatcher._begin(data, connection)
            if isinstance(found, Usual):
                found.route.quick = None if self._short_cut is None else self._counted
            return self._dispatcher.dispatch(data, connection)
        except MalformedInput:
            return "closed"

    def _counted(self, *args: Any) -> Any:
        assert self._short_cut is not None
        reply = self._short_cut(*args)
        self.taken += reply is not None
        return reply
