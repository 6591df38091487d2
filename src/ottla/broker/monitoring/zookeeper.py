"""ZooKeeper: the session, and how long requests take."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeVar

from ottla.metrics.family import Distribution, Family, quantile_families, single
from ottla.metrics.histogram import TIME_BOUNDS_S, Histogram
from ottla.metrics.table import METRICS, ZOOKEEPER_SESSION
from ottla.ports import Change, MetadataStore, Node, SessionEvent

T = TypeVar("T")


class MeasuredStore:
    """A `MetadataStore` whose requests are timed."""

    def __init__(self, store: MetadataStore, monotonic: Callable[[], float]) -> None:
        self._store = store
        self._monotonic = monotonic
        self.multi_bytes_max = store.multi_bytes_max
        self.took_s = Histogram(TIME_BOUNDS_S)
        self._events = dict.fromkeys(SessionEvent, 0)
        store.on_session(self._count)

    async def get(self, path: str) -> Node | None:
        return await self._timed(self._store.get(path))

    async def children(self, path: str) -> list[str]:
        return await self._timed(self._store.children(path))

    async def multi(self, changes: Sequence[Change]) -> list[str]:
        return await self._timed(self._store.multi(changes))

    def watch(self, path: str, callback: Callable[[str], None]) -> None:
        self._store.watch(path, callback)

    def unwatch(self, path: str, callback: Callable[[str], None]) -> None:
        self._store.unwatch(path, callback)

    def on_session(self, callback: Callable[[SessionEvent], None]) -> None:
        self._store.on_session(callback)

    async def close(self) -> None:
        await self._store.close()

    async def _timed(self, request: Awaitable[T]) -> T:
        began = self._monotonic()
        try:
            return await request
        finally:
            self.took_s.add(self._monotonic() - began)

    def _count(self, event: SessionEvent) -> None:
        self._events[event] += 1

    def families(self) -> Iterator[Family]:
        took, events = self.took_s, self._events
        requests = Distribution((), took.bounds, took.counts, took.recent(), took.sum)
        yield from quantile_families(METRICS["kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms"], [requests], 1000)
        yield single(METRICS[f"{ZOOKEEPER_SESSION}disconnects_total"], events[SessionEvent.SUSPENDED])
        yield single(METRICS[f"{ZOOKEEPER_SESSION}expires_total"], events[SessionEvent.EXPIRED])
        yield single(METRICS[f"{ZOOKEEPER_SESSION}syncconnects_total"], events[SessionEvent.CONNECTED])
        yield single(METRICS[f"{ZOOKEEPER_SESSION}authfailures_total"], 0)
