"""Znodes under /admin in which tools leave requests for the controller; the controller removes them when they are done."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ottla.broker.controller.controller_state import ControllerState
from ottla.ports import BadVersion, Change, Delete, MetadataStore, NoNode


class RequestZnodes:
    def __init__(self, store: MetadataStore, state: ControllerState, read_later: Callable[[], None]) -> None:
        self._store = store
        self._state = state
        self._read_later = read_later

    async def write(self, changes: Sequence[Change]) -> None:
        """Write where tools write too. If a tool was faster, read the tree again."""
        try:
            await self._store.multi([*self._state.fence(), *changes])
        except (BadVersion, NoNode):
            self._read_later()

    async def remove(self, paths: Iterable[str], version: int = -1) -> None:
        for path in paths:
            await self.write([Delete(path, version)])
