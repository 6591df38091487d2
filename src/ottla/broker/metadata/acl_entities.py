"""The ACLs of the metadata tree, on every broker of a cluster.

Owns this broker's copy of what is under /kafka-acl and /kafka-acl-extended. Whoever changes ACLs, an Apache Kafka broker or
Kafka's tool on ZooKeeper, leaves a notification under /kafka-acl-changes or /kafka-acl-extended-changes; every broker reads the
resources that it names. Never writes ACLs, and does not enforce them: there is no authorizer yet.

A node that cannot be parsed counts as no ACLs and is logged.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from ottla.broker.metadata.change_notifications import ChangeNotifications, NotificationReader
from ottla.broker.metadata.tree import each
from ottla.cluster import acls
from ottla.ports import MetadataStore, StoreError

logger = logging.getLogger(__name__)


class AclEntities:
    def __init__(self, store: MetadataStore) -> None:
        self.acls: acls.Acls = {}
        """By resource, of resources that have any."""
        paths = (acls.ACL_CHANGES, acls.ACL_CHANGES_EXTENDED)
        self._store = store
        self._notifications = [ChangeNotifications(store, path, acls.CHANGE_PREFIX) for path in paths]
        self._reader = NotificationReader(store, "ACLs", paths, read_all=self._read_all, read_new=self._read_notified)

    async def start(self) -> None:
        await self._reader.start(self._read_all)

    async def stop(self) -> None:
        await self._reader.stop()

    async def _read_all(self) -> None:
        for notifications in self._notifications:
            await notifications.skip()
        resources: list[acls.Resource] = []
        for pattern in [acls.LITERAL, *(name.upper() for name in await self._store.children(acls.ACLS_EXTENDED))]:
            for kind in await self._store.children(acls.acl_root(pattern)):
                names = await self._store.children(f"{acls.acl_root(pattern)}/{kind}")
                resources += [acls.Resource(kind, name, pattern) for name in names]
        self.acls = await self._read(resources)

    async def _read_notified(self) -> None:
        for notifications in self._notifications:
            _, fresh = await notifications.read()
            if not fresh:
                continue
            nodes = await each([f"{notifications.path}/{name}" for name in fresh], self._store.get)
            named = {acls.decode_acl_change(node.data) for node in nodes if node is not None}
            resources = {resource for resource in named if resource is not None}
            found = await self._read(resources)
            self.acls = {resource: entries for resource, entries in self.acls.items() if resource not in resources} | found
            notifications.seen(fresh[-1])
            for resource in sorted(resources):
                count = len(found.get(resource, ()))
                logger.info("ACLs of %s %s (%s) changed: %d entries", resource.kind, resource.name, resource.pattern, count)

    async def _read(self, resources: Collection[acls.Resource]) -> dict[acls.Resource, frozenset[acls.AclEntry]]:
        nodes = await each([acls.acl_path(resource) for resource in resources], self._store.get)
        found: dict[acls.Resource, frozenset[acls.AclEntry]] = {}
        for resource, node in zip(resources, nodes, strict=True):
            try:
                entries = acls.decode_acls(acls.acl_path(resource), node.data) if node is not None else frozenset()
            except StoreError as error:
                logger.error("%s; treating it as no ACLs", error)
                continue
            if entries:
                found[resource] = entries
        return found
