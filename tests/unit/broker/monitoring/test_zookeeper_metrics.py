"""The store that times requests passes everything on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

import pytest

from ottla.broker.monitoring.zookeeper import MeasuredStore
from ottla.ports import Change, Create, Node, NoNode, SessionEvent
from ottla.runtime.loop import run


class Store:
    multi_bytes_max = 7

    def __init__(self) -> None:
        self.said: list[object] = []
        self.callbacks: list[Callable[[SessionEvent], None]] = []

    async def get(self, path: str) -> Node | None:
        await asyncio.sleep(0.01)
        return Node(path.encode(), 1, 2)

    async def children(self, path: str) -> list[str]:
        return [path]

    async def multi(self, changes: Sequence[Change]) -> list[str]:
        raise NoNode("gone")

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        self.said.append(("watch", path))

    def unwatch(self, path: str, callback: Callable[[str], None]) -> None:
        self.said.append(("unwatch", path))

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        self.callbacks.append(callback)

    async def close(self) -> None:
        self.said.append("close")


def test_requests_are_timed_and_session_events_counted() -> None:
    async def case() -> None:
        inner = Store()
        store = MeasuredStore(inner, asyncio.get_running_loop().time)
        assert store.multi_bytes_max == 7
        assert await store.get("/a") == Node(b"/a", 1, 2)
        assert await store.children("/b") == ["/b"]
        with pytest.raises(NoNode):
            await store.multi([Create("/c")])
        store.watch("/d", print)
        store.unwatch("/d", print)
        seen: list[SessionEvent] = []
        store.on_session(seen.append)
        for callback in inner.callbacks:
            for event in (SessionEvent.SUSPENDED, SessionEvent.SUSPENDED, SessionEvent.EXPIRED, SessionEvent.CONNECTED):
                callback(event)
        await store.close()
        assert inner.said == [("watch", "/d"), ("unwatch", "/d"), "close"]
        assert len(seen) == 4
        found = {f"{family.name}{labels}": value for family in store.families() for labels, value in family.samples}
        latency = "kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"
        assert found[f"{latency}_count"] == 3
        assert found[f'{latency}{{quantile="0.999"}}'] >= 8
        session = "kafka_server_sessionexpirelistener_zookeeper"
        assert (found[f"{session}disconnects_total"], found[f"{session}expires_total"]) == (2, 1)
        assert found[f"{session}syncconnects_total"] == 1

    run(case())
