"""Watches the metadata tree for what other brokers and tools write there (F59).

Owns the watches and the loop that reads. A watch only says that something may have changed: the readers read the nodes and
compare them with the image, so what this controller wrote itself causes nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import Final

from ottla.broker.controller.controller_state import ControllerState
from ottla.cluster import znodes
from ottla.errors import KafkaError
from ottla.ports import BadVersion, Change, Delete, MetadataStore, NoNode, StoreError

logger = logging.getLogger(__name__)

_RETRY_S: Final = 1.0
_RETRY_MAX_S: Final = 60.0
_WATCHED: Final = (
    znodes.BROKER_IDS,
    znodes.TOPICS,
    znodes.DELETE_TOPICS,
    znodes.LOG_DIR_EVENTS,
    znodes.PREFERRED_ELECTION,
    znodes.REASSIGN_PARTITIONS,
)


class TreeWatcher:
    def __init__(self, store: MetadataStore, state: ControllerState, resign: Callable[[], Awaitable[None]]) -> None:
        """`resign`: give the term up, after an error that nobody foresaw."""
        self.readers: Sequence[Callable[[], Awaitable[None]]] = ()
        """Called one after the other, during a term, whenever the tree may have changed."""
        self._store = store
        self._state = state
        self._resign = resign
        self._changed = asyncio.Event()

    def watch(self) -> None:
        for path in _WATCHED:
            self._store.watch(path, self.read_soon)

    def read_soon(self, _path: str = "") -> None:
        self._changed.set()

    async def write(self, changes: Sequence[Change]) -> None:
        """Write where tools write too. If a tool was faster, read the tree again."""
        try:
            await self._store.multi([*self._state.fence(), *changes])
        except (BadVersion, NoNode):
            asyncio.get_running_loop().call_later(_RETRY_S, self._changed.set)

    async def remove(self, paths: Iterable[str], version: int = -1) -> None:
        """Remove requests that tools left under /admin."""
        for path in paths:
            await self.write([Delete(path, version)])

    async def run(self) -> None:
        pause_s = _RETRY_S
        while True:
            await self._changed.wait()
            self._changed.clear()
            if not self._state.is_active:
                continue
            try:
                for read in self.readers:
                    await read()
                pause_s = _RETRY_S
            except (StoreError, KafkaError) as error:
                logger.warning("Controller could not read a change of the metadata tree, retrying in %.0f s: %s", pause_s, error)
                asyncio.get_running_loop().call_later(pause_s, self._changed.set)
                pause_s = min(2 * pause_s, _RETRY_MAX_S)
            except Exception:
                logger.exception("Controller failed to process a change of the metadata tree, resigning")
                await self._resign()
