"""The access control entries of the metadata tree, on every broker of a cluster.

Owns: this broker's view of what lies under /kafka-acl and /kafka-acl-extended. Whoever changes entries there, an Apache Kafka
broker or Kafka's own tool on ZooKeeper, leaves a notice under /kafka-acl-changes or /kafka-acl-extended-changes; every broker
reads what the notice names, all over again. Never: writes there, or refuses anybody anything for it (there is no authorizer yet).

1. After a reconnect everything is read again: notices may have come and gone meanwhile.
2. A node somebody spoiled counts as no entries, and says so in the log; the others are read all the same.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from ottla.broker.tree import each, patiently
from ottla.cluster.acls import (
    ACL_CHANGES,
    ACL_CHANGES_EXTENDED,
    ACLS_EXTENDED,
    CHANGE_PREFIX,
    LITERAL,
    AclEntry,
    Acls,
    Resource,
    acl_path,
    acl_root,
    decode_acl_change,
    decode_acls,
)
from ottla.ports import MetadataStore, SessionEvent, StoreError

logger = logging.getLogger(__name__)

_NOTICES: Final = (ACL_CHANGES, ACL_CHANGES_EXTENDED)


class AclEntities:
    def __init__(self, store: MetadataStore) -> None:
        self.acls: Acls = {}
        """Of every resource that has any."""
        self._store = store
        self._seen = dict.fromkeys(_NOTICES, -1)
        self._look = asyncio.Event()
        self._all = False
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        for path in _NOTICES:
            self._store.watch(path, lambda _: self._look.set())
        self._store.on_session(self._session_changed)
        await patiently(self._read_all)
        self._look.set()
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

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
                logger.warning("access control entries could not be read: %s", error)
                self._all = True  # with the next connection
            except Exception:
                logger.exception("access control entries could not be taken over")

    async def _read_all(self) -> None:
        for path in _NOTICES:
            self._seen[path] = max((_number(name) for name in await self._store.children(path)), default=-1)
        resources: list[Resource] = []
        for pattern in [LITERAL, *(name.upper() for name in await self._store.children(ACLS_EXTENDED))]:
            for kind in await self._store.children(acl_root(pattern)):
                names = await self._store.children(f"{acl_root(pattern)}/{kind}")
                resources += [Resource(kind, name, pattern) for name in names]
        self.acls = await self._read(resources)

    async def _read_notices(self) -> None:
        for path in _NOTICES:
            names = sorted(await self._store.children(path), key=_number)
            fresh = [name for name in names if _number(name) > self._seen[path]]
            if not fresh:
                continue
            nodes = await each([f"{path}/{name}" for name in fresh], self._store.get)
            named = {decode_acl_change(node.data) for node in nodes if node is not None}
            resources = {resource for resource in named if resource is not None}
            found = await self._read(resources)
            self.acls = {resource: acls for resource, acls in self.acls.items() if resource not in resources} | found
            self._seen[path] = _number(fresh[-1])

    async def _read(self, resources: Collection[Resource]) -> dict[Resource, frozenset[AclEntry]]:
        nodes = await each([acl_path(resource) for resource in resources], self._store.get)
        found: dict[Resource, frozenset[AclEntry]] = {}
        for resource, node in zip(resources, nodes, strict=True):
            try:
                acls = decode_acls(acl_path(resource), node.data) if node is not None else frozenset()
            except StoreError as error:
                logger.error("%s; it counts as no entries", error)
                continue
            if acls:
                found[resource] = acls
        return found


def _number(name: str) -> int:
    digits = name.removeprefix(CHANGE_PREFIX)
    return int(digits) if digits.isdigit() else -1
