"""Every store of the project against the same rules (F59, F62)."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest
from store_conformance import CASES, Case, Stores

from ottla.ports import MetadataStore
from ottla.runtime.embedded_store import EmbeddedStore
from ottla.sim.metadata import MetadataTree
from ottla.sim.process import Process


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
