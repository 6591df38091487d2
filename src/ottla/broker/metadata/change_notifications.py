"""Follows change notifications: sequential znodes that tell all brokers which metadata was changed (F59).

Owns when to read, and which notifications are new. What they name is read by whoever follows them (`dynamic_configs`,
`acl_follower`).

1. After a reconnect everything is read again: notifications may have come and gone meanwhile.
2. Notifications count as seen once what they name was read. If that fails, everything is read the next time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable

from ottla.broker.metadata.tree import retry_unavailable
from ottla.ports import MetadataStore, SessionEvent, StoreError

logger = logging.getLogger(__name__)


class ChangeNotifications:
    """The notifications under one path."""

    def __init__(self, store: MetadataStore, path: str, prefix: str) -> None:
        """`prefix`: what the names begin with; the store appends a sequence number."""
        self.path = path
        self._store = store
        self._prefix = prefix
        self.last_seen = -1
        """The number of the last notification that was read; -1: none."""

    async def skip(self) -> None:
        """Count all notifications as seen: everything is about to be read."""
        self.last_seen = max(map(self._number, await self._store.children(self.path)), default=-1)

    async def read(self) -> tuple[list[str], list[str]]:
        """The names of all notifications and of the new ones, in order."""
        names = sorted(await self._store.children(self.path), key=self._number)
        return names, [name for name in names if self._number(name) > self.last_seen]

    def seen(self, name: str) -> None:
        self.last_seen = self._number(name)

    def _number(self, name: str) -> int:
        digits = name.removeprefix(self._prefix)
        return int(digits) if digits.isdigit() else -1


class NotificationReader:
    """The task that reads whenever notifications may have come."""

    def __init__(
        self,
        store: MetadataStore,
        what: str,
        paths: Iterable[str],
        *,
        read_all: Callable[[], Awaitable[None]],
        read_new: Callable[[], Awaitable[None]],
    ) -> None:
        """`what` is read, for the log."""
        self._store = store
        self._what = what
        self._paths = tuple(paths)
        self._read_all = read_all
        self._read_new = read_new
        self._changed = asyncio.Event()
        self._all = False
        self._task: asyncio.Task[None] | None = None

    async def start(self, load: Callable[[], Awaitable[None]]) -> None:
        """Watch, and `load` everything for the first time."""
        for path in self._paths:
            self._store.watch(path, lambda _: self._changed.set())
        self._store.on_session(self._session_changed)
        await retry_unavailable(load)
        self._changed.set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def read_all_soon(self) -> None:
        self._all = True
        self._changed.set()

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.CONNECTED:
            self.read_all_soon()

    async def _run(self) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            try:
                if self._all:
                    self._all = False
                    await self._read_all()
                else:
                    await self._read_new()
            except StoreError as error:
                logger.warning("Could not read %s: %s", self._what, error)
                self._all = True
            except Exception:
                logger.exception("Failed to apply %s", self._what)
