"""The rules that every metadata store must follow: those of ZooKeeper.

A store under test is given as a `Stores`: `open()` begins a session on the same tree each time, `end(store)` ends one.
`test_store_conformance` runs all of it on each store of the project.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import pytest

from ottla.ports import BadVersion, Change, Check, Create, Delete, MetadataStore, NodeExists, NoNode, SetData, StoreError
from tests.kit.wait import until_async


class Stores(Protocol):
    def open(self) -> MetadataStore: ...

    async def end(self, store: MetadataStore) -> None: ...


Case = Callable[[Stores], Awaitable[None]]
CASES: list[Case] = []


def case(function: Case) -> Case:
    CASES.append(function)
    return function


async def _refused(store: MetadataStore, error: type[StoreError], *changes: Change) -> None:
    with pytest.raises(error):
        await store.multi(changes)


@case
async def a_node_is_there_once_created(stores: Stores) -> None:
    store = stores.open()
    assert await store.get("/a") is None
    assert await store.children("/") == []
    assert await store.children("/nowhere") == []
    assert await store.multi([Create("/a", b"x"), Create("/a/c"), Create("/a/b", b"y")]) == ["/a", "/a/c", "/a/b"]
    node = await store.get("/a")
    assert node is not None
    assert (node.data, node.version) == (b"x", 0)
    assert await store.children("/a") == ["b", "c"]
    assert await store.children("/") == ["a"]
    await stores.end(store)


@case
async def parents_come_first_and_go_last(stores: Stores) -> None:
    store = stores.open()
    await _refused(store, NoNode, Create("/a/b"))
    await store.multi([Create("/a"), Create("/a/b")])
    await _refused(store, StoreError, Delete("/a"))
    await _refused(store, StoreError, Delete("/"))
    await store.multi([Delete("/a/b"), Delete("/a")])
    assert await store.children("/") == []
    await stores.end(store)


@case
async def what_exists_is_not_created_and_what_does_not_is_not_changed(stores: Stores) -> None:
    store = stores.open()
    await store.multi([Create("/a")])
    await _refused(store, NodeExists, Create("/a"))
    await _refused(store, NoNode, SetData("/b", b""))
    await _refused(store, NoNode, Delete("/b"))
    await _refused(store, NoNode, Check("/b", 0))
    await stores.end(store)


@case
async def versions_count_changes_and_are_compared(stores: Stores) -> None:
    store = stores.open()
    await store.multi([Create("/a", b"0")])
    await store.multi([SetData("/a", b"1", 0), SetData("/a", b"2", 1), SetData("/a", b"3")])
    node = await store.get("/a")
    assert node is not None
    assert (node.data, node.version) == (b"3", 3)
    await _refused(store, BadVersion, SetData("/a", b"4", 2))
    await _refused(store, BadVersion, Delete("/a", 2))
    await _refused(store, BadVersion, Check("/a", 2))
    await store.multi([Check("/a", 3), Delete("/a", 3)])
    await store.multi([Create("/a")])
    again = await store.get("/a")
    assert again is not None
    assert again.version == 0
    await stores.end(store)


@case
async def a_multi_is_done_whole_or_not_at_all(stores: Stores) -> None:
    store = stores.open()
    await store.multi([Create("/a", b"0"), Create("/a/old"), Create("/epoch")])
    before = await store.get("/a")
    await _refused(
        store,
        BadVersion,
        SetData("/a", b"1"),
        Delete("/a/old"),
        Create("/a/new"),
        Create("/a/n-", sequential=True),
        Check("/epoch", 7),
    )
    assert await store.get("/a") == before
    assert await store.children("/a") == ["old"]
    # The refused sequential node took no number.
    assert await store.multi([Create("/a/n-", sequential=True)]) == ["/a/n-0000000001"]
    assert await store.multi([]) == []
    await stores.end(store)


@case
async def a_multi_sees_its_own_changes(stores: Stores) -> None:
    store = stores.open()
    await store.multi(
        [Create("/a"), Create("/a/b"), SetData("/a/b", b"x", 0), Check("/a/b", 1), Delete("/a/b"), Create("/a/b", b"y")]
    )
    node = await store.get("/a/b")
    assert node is not None
    assert (node.data, node.version) == (b"y", 0)
    await stores.end(store)


@case
async def czxid_only_grows_over_sessions_too(stores: Stores) -> None:
    store = stores.open()
    await store.multi([Create("/a"), Create("/b")])
    a, b = await store.get("/a"), await store.get("/b")
    assert a is not None
    assert b is not None
    assert a.czxid == b.czxid, "one transaction"
    await store.multi([Delete("/a"), Create("/c", ephemeral=True)])
    c = await store.get("/c")
    assert c is not None
    assert c.czxid > b.czxid
    await store.multi([SetData("/b", b"changed")])
    changed = await store.get("/b")
    assert changed is not None
    assert changed.czxid == b.czxid, "of creation, not of the last change"
    await stores.end(store)
    store = stores.open()
    await store.multi([Create("/c", ephemeral=True)])
    again = await store.get("/c")
    assert again is not None
    assert again.czxid > c.czxid, "a broker that comes back has a higher epoch (KIP-380)"
    await stores.end(store)


@case
async def sequential_names_are_never_used_again(stores: Stores) -> None:
    store = stores.open()
    await store.multi([Create("/q")])
    names = await store.multi([Create("/q/n-", sequential=True), Create("/q/n-", b"x", sequential=True)])
    assert names == ["/q/n-0000000000", "/q/n-0000000001"]
    await store.multi([Delete(names[1])])
    await stores.end(store)
    store = stores.open()
    (third,) = await store.multi([Create("/q/n-", sequential=True)])
    assert third > names[1]
    await stores.end(store)


@case
async def ephemeral_nodes_go_with_their_session_and_others_stay(stores: Stores) -> None:
    store = stores.open()
    await store.multi([Create("/ids"), Create("/ids/1", b"x", ephemeral=True), Create("/ids/2", b"y")])
    assert await store.children("/ids") == ["1", "2"]
    await _refused(store, StoreError, Create("/ids/1/child"))
    await stores.end(store)
    store = stores.open()
    assert await store.children("/ids") == ["2"]
    assert await store.get("/ids/1") is None
    await store.multi([Create("/ids/1", ephemeral=True), Delete("/ids/1"), Create("/ids/1", b"kept")])
    await stores.end(store)
    store = stores.open()
    assert await store.children("/ids") == ["1", "2"], "made ephemeral, deleted, made again to stay"
    await stores.end(store)


@case
async def what_was_written_is_there_in_the_next_session(stores: Stores) -> None:
    store = stores.open()
    await store.multi([Create("/a", bytes(range(256))), Create("/a/\u00e9 b", b"")])
    await store.multi([SetData("/a", b"second")])
    await stores.end(store)
    store = stores.open()
    node = await store.get("/a")
    assert node is not None
    assert (node.data, node.version) == (b"second", 1)
    assert await store.children("/a") == ["\u00e9 b"]
    await _refused(store, BadVersion, SetData("/a", b"", 0))
    await stores.end(store)


@case
async def watches_tell_of_changes_of_node_and_children(stores: Stores) -> None:
    store = stores.open()
    await store.multi([Create("/a", b""), Create("/other")])
    seen: list[str] = []
    store.watch("/a", seen.append)
    store.watch("/a/b", seen.append)
    await store.multi([Create("/other/x")])
    await _let_run()
    assert seen == []
    await store.multi([SetData("/a", b"1")])
    await until_async(lambda: set(seen) == {"/a"})
    seen.clear()
    await store.multi([Create("/a/b")])
    await until_async(lambda: set(seen) == {"/a", "/a/b"})
    seen.clear()
    await store.multi([Delete("/a/b")])
    await until_async(lambda: set(seen) == {"/a", "/a/b"})
    seen.clear()
    await _refused(store, BadVersion, SetData("/a", b"2"), Check("/a", 99))
    await _let_run()
    assert seen == [], "nothing changed"
    others: list[str] = []
    store.watch("/a", others.append)
    store.unwatch("/a", seen.append)
    store.unwatch("/a/b", seen.append)
    await _let_run()
    seen.clear()
    await store.multi([SetData("/a", b"3")])
    await until_async(lambda: set(others) == {"/a"})
    assert seen == [], "who does not watch any more is not told"
    await stores.end(store)


@case
async def a_session_that_is_over_answers_nothing(stores: Stores) -> None:
    store = stores.open()
    await stores.end(store)
    with pytest.raises(StoreError):
        await store.get("/")
    with pytest.raises(StoreError):
        await store.children("/")
    await _refused(store, StoreError, Create("/a"))


@case
async def two_writers_with_the_same_version_do_not_both_win(stores: Stores) -> None:
    store = stores.open()
    await store.multi([Create("/a")])
    results = await asyncio.gather(
        *(store.multi([SetData("/a", b"%d" % number, 0)]) for number in range(5)), return_exceptions=True
    )
    assert sum(isinstance(result, BadVersion) for result in results) == 4
    await stores.end(store)


async def _let_run() -> None:
    """Give a call that must not happen time to happen."""
    for _ in range(5):
        await asyncio.sleep(0)
