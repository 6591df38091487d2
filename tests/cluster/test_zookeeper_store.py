"""The metadata store on a real ZooKeeper: the rules every store keeps, and what only happens to a session there (F59)."""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Awaitable, Callable, Iterator

import pytest

from ottla.ports import Create, MetadataStore, SessionEvent, SetData, StoreError, StoreUnavailable
from ottla.runtime.zookeeper_store import ZooKeeperStore
from tests.kit.store_conformance import CASES, Case
from tests.kit.wait import until_async
from tests.kit.zookeeper import ZooKeeper


class ZooKeeperStores:
    """Several sessions on one chroot. They are opened beforehand: `open` cannot wait."""

    def __init__(self, stores: list[ZooKeeperStore]) -> None:
        self._stores = stores

    def open(self) -> MetadataStore:
        return self._stores.pop(0)

    async def end(self, store: MetadataStore) -> None:
        await store.close()


async def connect(server: ZooKeeper, chroot: str, session_ms: int = 30_000) -> ZooKeeperStore:
    return await ZooKeeperStore.open(f"{server.address}{chroot}", session_timeout_ms=session_ms, connection_timeout_ms=60_000)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
def test_the_rules_of_every_store(case: Case, zookeeper: ZooKeeper) -> None:
    async def run() -> None:
        chroot = f"/{uuid.uuid4().hex}/deeper"
        stores = [await connect(zookeeper, chroot) for _ in range(3)]
        try:
            await case(ZooKeeperStores(list(stores)))
        finally:
            for store in stores:
                await store.close()

    asyncio.run(run())


@pytest.fixture
def server() -> Iterator[ZooKeeper]:
    own = ZooKeeper()
    own.start()
    yield own
    own.close()


def on(server: ZooKeeper, test: Callable[[ZooKeeperStore, list[SessionEvent]], Awaitable[None]], session_ms: int) -> None:
    async def run() -> None:
        store = await connect(server, "/x", session_ms)
        events: list[SessionEvent] = []
        store.on_session(events.append)
        try:
            await test(store, events)
        finally:
            await store.close()

    asyncio.run(asyncio.wait_for(run(), 180))


def test_a_restart_of_the_server_is_waited_out_and_watches_are_called(server: ZooKeeper) -> None:
    async def test(store: ZooKeeperStore, events: list[SessionEvent]) -> None:
        await store.multi([Create("/a", b"0"), Create("/mine", ephemeral=True)])
        seen: list[str] = []
        store.watch("/a", seen.append)
        server.stop()
        await until_async(lambda: SessionEvent.SUSPENDED in events)
        change = asyncio.ensure_future(store.multi([SetData("/a", b"1", 0)]))
        read = asyncio.ensure_future(store.get("/a"))
        await asyncio.sleep(0)
        assert not change.done()
        seen.clear()
        await asyncio.to_thread(server.start)
        assert await change == ["/a"]
        assert (await read) is not None
        node = await store.get("/a")
        assert node is not None
        assert (node.data, node.version) == (b"1", 1)
        mine = await store.get("/mine")
        assert mine is not None
        assert mine.mine
        assert events == [SessionEvent.SUSPENDED, SessionEvent.CONNECTED]
        await until_async(lambda: bool(seen))
        seen.clear()
        await store.multi([SetData("/a", b"2")])
        await until_async(lambda: bool(seen))

    on(server, test, 30_000)


def test_a_session_that_ends_is_told_and_takes_its_nodes(server: ZooKeeper) -> None:
    """C04: what was asked in it fails, and a new session takes its place."""

    async def test(store: ZooKeeperStore, events: list[SessionEvent]) -> None:
        await store.multi([Create("/a", b"0"), Create("/mine", ephemeral=True)])
        while SessionEvent.EXPIRED not in events:
            # Awake again, the server may hear us before it looks at who was silent: then the session goes on.
            events.clear()
            server.pause()
            change = asyncio.ensure_future(store.multi([SetData("/a", b"1")]))
            await asyncio.sleep(4.5)  # longer than the session may be silent
            server.resume()
            await until_async(lambda: SessionEvent.EXPIRED in events or SessionEvent.CONNECTED in events)
            if SessionEvent.EXPIRED not in events:
                assert await change == ["/a"]
        await until_async(lambda: events[-1] is SessionEvent.CONNECTED)
        with pytest.raises(StoreUnavailable):
            await change
        assert await store.get("/mine") is None
        await store.multi([Create("/mine", ephemeral=True)])
        node = await store.get("/mine")
        assert node is not None
        assert node.mine
        other = await connect(server, "/x", 30_000)
        try:
            foreign = await other.get("/mine")
            assert foreign is not None
            assert not foreign.mine
        finally:
            await other.close()

    on(server, test, 2000)


@pytest.mark.parametrize("connect_to", ["", "  ", "host:port", "a:1,b:x/p", "127.0.0.1:2181/a//b", "127.0.0.1:0"])
def test_addresses_that_are_none(connect_to: str) -> None:
    async def run() -> None:
        with pytest.raises(StoreError, match=r"zookeeper\.connect"):
            await ZooKeeperStore.open(connect_to, session_timeout_ms=1000, connection_timeout_ms=1000)

    asyncio.run(run())
