"""Keeps the authorizer's ACLs equal to those of the metadata tree.

Whoever changes ACLs, another broker, an Apache Kafka broker or Kafka's tool on ZooKeeper, leaves a notification under
/kafka-acl-changes or /kafka-acl-extended-changes; every broker reads the resources that it names, and then acknowledges the
notification in its node below /ottla-acl-acknowledged (ADR 9). Changes are written by `controller.acl_requests`.

1. The node of acknowledgements is created in one write with the broker's registration, and goes with it. So every registered
   broker of Ottla either enforces what it acknowledged or more.
2. Between an expired session and the first reading after the next registration the authorizer is suspended: a change may have
   been confirmed to a client while this broker did not count.
3. A node that cannot be parsed denies everything to everyone but super users, and is logged: to ignore it could lift a DENY.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import Final

from ottla.broker.metadata.change_notifications import ChangeNotifications, NotificationReader
from ottla.broker.metadata.tree import each, retry_unavailable
from ottla.ports import Change, Create, Delete, MetadataStore, Node, NodeExists, NoNode, SessionEvent, SetData, StoreError
from ottla.security import acl_nodes
from ottla.security.acl import PATTERN_NAMES, RESOURCE_NAMES, AclEntry, ResourcePattern
from ottla.security.authorizer import Authorizer

logger = logging.getLogger(__name__)

_NOTIFICATIONS_KEPT: Final = 1000
"""Every broker removes older ones: a broker that was disconnected reads everything anyway."""
_NOTHING: Final = (-1, -1)


async def ensure_acl_paths(store: MetadataStore) -> None:
    for path in [*acl_nodes.base_paths(), acl_nodes.ACKNOWLEDGED]:
        if await store.get(path) is None:
            try:
                await store.multi([Create(path)])
            except NodeExists:
                continue


async def load_acls(store: MetadataStore) -> dict[ResourcePattern, frozenset[AclEntry]]:
    """All ACLs of the tree."""
    resources: list[ResourcePattern] = []
    for pattern in PATTERN_NAMES:
        root = acl_nodes.acl_root(pattern)
        for kind in await store.children(root):
            resource_type = acl_nodes.resource_type_of(kind)
            if resource_type is None:
                logger.warning("Ignoring %s/%s: unknown resource type", root, kind)
                continue
            names = await store.children(f"{root}/{kind}")
            resources += [ResourcePattern(resource_type, name, pattern) for name in names]
    return await read_acls(store, resources)


async def read_acls(store: MetadataStore, resources: Collection[ResourcePattern]) -> dict[ResourcePattern, frozenset[AclEntry]]:
    """The ACLs of those of the resources that have any."""
    nodes = await each([acl_nodes.acl_path(resource) for resource in resources], store.get)
    found = {resource: decoded(resource, node) for resource, node in zip(resources, nodes, strict=True)}
    return {resource: entries for resource, entries in found.items() if entries}


def decoded(resource: ResourcePattern, node: Node | None) -> frozenset[AclEntry]:
    if node is None:
        return frozenset()
    try:
        return acl_nodes.decode_acls(acl_nodes.acl_path(resource), node.data)
    except StoreError as error:
        logger.error("%s; denying everything on %s until its ACLs are deleted", error, resource)
        return acl_nodes.UNREADABLE


class AclFollower:
    """Follows the ACLs of a cluster."""

    def __init__(self, store: MetadataStore, authorizer: Authorizer, broker_id: int) -> None:
        self.lock = asyncio.Lock()
        """Held while ACLs are read or written: what was read must not replace what was written meanwhile."""
        paths = (acl_nodes.ACL_CHANGES, acl_nodes.ACL_CHANGES_EXTENDED)
        self._store = store
        self._authorizer = authorizer
        self._path = acl_nodes.acknowledged_path(broker_id)
        self._literal, self._prefixed = (ChangeNotifications(store, path, acl_nodes.CHANGE_PREFIX) for path in paths)
        self._reader = NotificationReader(store, "ACLs", paths, read_all=self._read_all, read_new=self._read_notified)
        self._acknowledged: tuple[int, int] | None = None
        """What the node of acknowledgements says; None: there is no node."""
        self._registrations = 0

    async def start(self) -> None:
        """Read the ACLs and follow their changes. Before the broker registers."""
        await retry_unavailable(lambda: ensure_acl_paths(self._store))
        self._store.on_session(self._session_changed)
        await self._reader.start(self._read_all)

    async def stop(self) -> None:
        await self._reader.stop()

    def registration(self) -> list[Change]:
        """To be written together with the registration of the broker."""
        return [Create(self._path, acl_nodes.encode_acknowledged(*_NOTHING), ephemeral=True)]

    async def registered(self) -> None:
        """The broker has registered. Returns when it enforces everything that was confirmed without it."""
        self._acknowledged = _NOTHING
        self._registrations += 1
        await retry_unavailable(self._read_all)

    def registered_again(self) -> None:
        """In a new session."""
        self._acknowledged = _NOTHING
        self._registrations += 1
        self._reader.read_all_soon()

    def _session_changed(self, event: SessionEvent) -> None:
        if event is SessionEvent.EXPIRED:
            self._acknowledged = None
            self._authorizer.suspend()

    async def _read_all(self) -> None:
        async with self.lock:
            # What is read before the broker has registered, in this session, may be older than what was confirmed without it.
            registration = self._registrations if self._acknowledged is not None else -1
            await self._literal.skip()
            await self._prefixed.skip()
            self._authorizer.replace_all(await load_acls(self._store))
            if self._acknowledged is not None and registration == self._registrations:
                if self._authorizer.suspended:
                    self._authorizer.resume()
                    logger.info("The ACLs were read again, requests are authorized")
                await self._acknowledge()

    async def _read_notified(self) -> None:
        async with self.lock:
            for notifications in (self._literal, self._prefixed):
                names, fresh = await notifications.read()
                if fresh:
                    await self._apply(notifications, fresh)
                if len(names) > 2 * _NOTIFICATIONS_KEPT:
                    old = [f"{notifications.path}/{name}" for name in names[:-_NOTIFICATIONS_KEPT]]
                    await each(old, self._remove_notification)
            await self._acknowledge()

    async def _apply(self, notifications: ChangeNotifications, fresh: list[str]) -> None:
        nodes = await each([f"{notifications.path}/{name}" for name in fresh], self._store.get)
        named = {acl_nodes.decode_acl_change(node.data) for node in nodes if node is not None}
        resources = {resource for resource in named if resource is not None}
        found = await read_acls(self._store, resources)
        for resource in sorted(resources):
            entries = found.get(resource, frozenset())
            if self._authorizer.index.entries.get(resource, frozenset()) == entries:
                continue
            self._authorizer.set(resource, entries)
            kind, pattern = RESOURCE_NAMES[resource.type], PATTERN_NAMES[resource.pattern]
            logger.info("ACLs of %s %s (%s) changed: %d entries", kind, resource.name, pattern, len(entries))
        notifications.seen(fresh[-1])

    async def _acknowledge(self) -> None:
        seen = self._literal.last_seen, self._prefixed.last_seen
        if self._acknowledged is not None and self._acknowledged != seen:
            await self._store.multi([SetData(self._path, acl_nodes.encode_acknowledged(*seen))])
            self._acknowledged = seen

    async def _remove_notification(self, path: str) -> None:
        try:
            await self._store.multi([Delete(path)])
        except NoNode:
            return
