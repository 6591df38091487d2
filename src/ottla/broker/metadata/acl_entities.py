"""The access control entries of the metadata tree, on every broker of a cluster.

Owns: this broker's view of what lies under /kafka-acl and /kafka-acl-extended. Whoever changes entries there, an Apache Kafka
broker or Kafka's own tool on ZooKeeper, leaves a notice under /kafka-acl-changes or /kafka-acl-extended-changes; every broker
reads what the notice names, all over again. Never: writes there, or refuses anybody anything for it (there is no authorizer yet).

A node somebody spoiled counts as no entries, and says so in the log; the others are read all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Collection

from ottla.broker.metadata.notices import NoticeFollower
from ottla.broker.metadata.tree import each
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
from ottla.ports import MetadataStore, StoreError

logger = logging.getLogger(__name__)


class AclEntities(NoticeFollower):
    what = "access control entries"

    def __init__(self, store: MetadataStore) -> None:
        super().__init__(store, dict.fromkeys((ACL_CHANGES, ACL_CHANGES_EXTENDED), CHANGE_PREFIX))
        self.acls: Acls = {}
        """Of every resource that has any."""

    async def _read_all(self) -> None:
        await self._pass_over()
        resources: list[Resource] = []
        for pattern in [LITERAL, *(name.upper() for name in await self._store.children(ACLS_EXTENDED))]:
            for kind in await self._store.children(acl_root(pattern)):
                names = await self._store.children(f"{acl_root(pattern)}/{kind}")
                resources += [Resource(kind, name, pattern) for name in names]
        self.acls = await self._read(resources)

    async def _read_notices(self) -> None:
        for path in self._seen:
            _, fresh = await self._notices(path)
            if not fresh:
                continue
            nodes = await each([f"{path}/{name}" for name in fresh], self._store.get)
            named = {decode_acl_change(node.data) for node in nodes if node is not None}
            resources = {resource for resource in named if resource is not None}
            found = await self._read(resources)
            self.acls = {resource: acls for resource, acls in self.acls.items() if resource not in resources} | found
            self._seen[path] = self._number(path, fresh[-1])
            for resource in sorted(resources):
                count = len(found.get(resource, ()))
                logger.info("access control of %s %s (%s): %d entries", resource.kind, resource.name, resource.pattern, count)

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
