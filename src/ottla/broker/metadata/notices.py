"""Following what others write into the metadata tree by the notices they leave for it (F59).

Owns: when to look, and which notices are new. What they name, and how it is read, is for whoever follows them (`dynamic_configs`,
`acl_entities`).

1. After a reconnect everything is read again: notices may have come and gone meanwhile.
2. Notices count as seen when what they name was read: if that fails, everything is read with the next look.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import ClassVar

from ottla.broker.metadata.tree import patiently
from ottla.ports import MetadataStore, SessionEvent, StoreError

logger = logging.getLogger(__name__)


class NoticeFollower:
    what: ClassVar[str]
    """Is read, for the log."""

    def __init__(self, store: MetadataStore, notices: Mapping[str, str]) -> None:
        """`notices`: the paths below which they lie, and what their names begin with; the tree adds a number."""
        self._store = store
        self._prefixes = notices
        self._seen = dict.fromkeys(notices, -1)
        self._look = asyncio.Event()
        self._all = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        for path in self._prefixes:
            self._store.watch(path, lambda _: self._look.set())
        self._store.on_session(self._session_changed)
        await patiently(self._load)
        self._look.set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _load(self) -> None:
        """Read everything for the first time."""
        await self._read_all()

    async def _read_all(self) -> None:
        """Read everything again."""
        raise NotImplementedError

    async def _read_notices(self) -> None:
        raise NotImplementedError

    async def _pass_over(self) -> None:
        """The notices there are: everything is about to be read."""
        for path in self._prefixes:
            self._seen[path] = max((self._number(path, name) for name in await self._store.children(path)), default=-1)

    async def _notices(self, path: str) -> tuple[list[str], list[str]]:
        """The names of all, in their order, and of those that are new."""
        names = sorted(await self._store.children(path), key=lambda name: self._number(path, name))
        return names, [name for name in names if self._number(path, name) > self._seen[path]]

    def _number(self, path: str, name: str) -> int:
        digits = name.removeprefix(self._prefixes[path])
        return int(digits) if digits.isdigit() else -1

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self._all = True
            self._look.set()

    async def _run(self) -> None:
        while True:
            await self._look.wait()
            self._look.clear()
            try:
                if self._all:
                    self._all = False
                    await self._read_all()
                else:
                    await self._read_notices()
            except StoreError as error:
                logger.warning("%s could not be read: %s", self.what, error)
                self._all = True
            except Exception:
                logger.exception("%s could not be taken over", self.what)
