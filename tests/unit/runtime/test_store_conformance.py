"""Every store of the project against the same rules (F59, F62)."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from ottla.ports import Change, Check, Create, Delete, MetadataStore, Node, SetData, StoreError
from ottla.runtime.embedded_store import EmbeddedStore
from ottla.sim.kernel.metadata_tree import MetadataTree
from ottla.sim.kernel.process import Process
from tests.kit.store_conformance import CASES, Case, Stores


class EmbeddedStores:
    def __init__(self, path: Path) -> None:
        self._path = str(path / "metadata.db")

    def open(self) -> MetadataStore:
        return EmbeddedStore.open(self._path)

    async def end(self, store: MetadataStore) -> None:
        await store.close()


class SimStores:
    def __init__(self) -> None:
        self._tree = MetadataTree()

    def open(self) -> MetadataStore:
        return self._tree.session(Process("test"), random.Random(1))

    async def end(self, store: MetadataStore) -> None:
        await store.close()


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.__name__)
@pytest.mark.parametrize("kind", ["embedded", "sim"])
def test_store(kind: str, case: Case, tmp_path: Path) -> None:
    stores: Stores = EmbeddedStores(tmp_path) if kind == "embedded" else SimStores()

    async def run() -> None:
        await case(stores)

    asyncio.run(run())


@pytest.mark.parametrize("seed", range(6))
def test_random_histories_end_alike_on_both_stores(seed: int, tmp_path: Path) -> None:
    """The same changes, sense or nonsense, over several sessions: the same outcomes, the same tree."""
    rng = random.Random(seed)
    paths = ["/a", "/b", "/a/x", "/a/y", "/a/x/1", "/b/x", "/nowhere/x"]

    def change() -> Change:
        path, version = rng.choice(paths), rng.choice([-1, -1, 0, 1, 2])
        kind = rng.randrange(10)
        if kind < 4:
            return Create(path, rng.randbytes(2), ephemeral=rng.random() < 0.2, sequential=rng.random() < 0.2)
        if kind < 7:
            return SetData(path, rng.randbytes(2), version)
        return Delete(path, version) if kind < 9 else Check(path, version)

    async def outcome(store: MetadataStore, changes: list[Change]) -> object:
        try:
            return await store.multi(changes)
        except StoreError as error:
            return type(error)

    async def tree(store: MetadataStore, path: str = "/") -> dict[str, Node | None]:
        found = {path: await store.get(path)}
        for name in await store.children(path):
            found |= await tree(store, f"{path.rstrip('/')}/{name}")
        return found

    async def run() -> None:
        kinds: list[Stores] = [EmbeddedStores(tmp_path), SimStores()]
        for _ in range(3):
            embedded, sim = (stores.open() for stores in kinds)
            for _ in range(40):
                changes = [change() for _ in range(rng.randrange(1, 5))]
                assert await outcome(embedded, changes) == await outcome(sim, changes), changes
            contents = [
                {path: node and (node.data, node.version) for path, node in (await tree(store)).items()}
                for store in (embedded, sim)
            ]
            assert contents[0] == contents[1]
            await kinds[0].end(embedded)
            await kinds[1].end(sim)

    asyncio.run(run())
