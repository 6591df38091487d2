"""Reads and writes the configs of users, client ids and IP addresses (/config/users, /config/clients, /config/ips).

The rules are `cluster.client_entities`.

1. A change checks the version of the node that it starts from. With its notification under /config/changes it is one write.
2. A node that cannot be parsed counts as no configs and is logged.
3. A node without configs and children is removed, and with it the parents that this leaves empty, as in Kafka.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ottla.broker.metadata.tree import each
from ottla.cluster import znodes
from ottla.cluster.client_entities import ClientConfigs, Entity, entity_of, entity_path
from ottla.ports import BadVersion, Change, Create, Delete, MetadataStore, Node, NodeExists, NoNode, SetData, StoreError

logger = logging.getLogger(__name__)


async def load_client_configs(store: MetadataStore) -> ClientConfigs:
    """The configs of every entity that has any."""
    paths: list[str] = []
    for kind in ("users", "clients", "ips"):
        paths += [f"{kind}/{name}" for name in await store.children(f"/config/{kind}")]
    users = [path for path in paths if path.startswith("users/")]
    for user, names in zip(users, await each(users, lambda path: store.children(f"/config/{path}/clients")), strict=True):
        paths += [f"{user}/clients/{name}" for name in names]
    found = await each(paths, lambda path: load_client_config(store, path))
    entities = [(entity_of(path), config) for path, config in zip(paths, found, strict=True)]
    return {entity: config for entity, config in entities if entity is not None and config}


async def load_client_config(store: MetadataStore, path: str) -> Mapping[str, str]:
    """The configs at a path below /config; empty if there are none."""
    return _decoded(path, await store.get(f"/config/{path}"))


def _decoded(path: str, node: Node | None) -> dict[str, str]:
    if node is None or not node.data:
        # The parent of a client id of a user may have no data.
        return {}
    try:
        return znodes.decode_config(f"/config/{path}", node.data)
    except StoreError as error:
        logger.error("%s; treating it as no configs", error)
        return {}


async def alter_client_config(
    store: MetadataStore, entity: Entity, alter: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool = False
) -> dict[str, str]:
    """Replace the configs of an entity by what `alter` makes of them. What it raises is raised."""
    path = entity_path(entity)
    full_path = f"/config/{path}"
    notification = Create(znodes.CONFIG_CHANGE, znodes.encode_config_change(path), sequential=True)
    while True:
        node = await store.get(full_path)
        present = _decoded(path, node)
        config = alter(present)
        if validate_only or config == present:
            return config
        data = znodes.encode_config(config)
        changes: list[Change] = []
        if node is not None:
            changes = [] if config else await _removal(store, path, node)
            changes = changes or [SetData(full_path, data, node.version)]
        else:
            changes = [Create(parent) for parent in await _missing_parents(store, path)]
            changes.append(Create(full_path, data))
        try:
            await store.multi([*changes, notification])
        except (BadVersion, NodeExists, NoNode):
            continue
        except StoreError:
            # A child may have been added to a node that was to be removed.
            if node is None or config or not await store.children(full_path):
                raise
            continue
        return config


async def _removal(store: MetadataStore, path: str, node: Node) -> list[Change]:
    """Remove a node and the parents that only it keeps; empty if it has children."""
    if await store.children(f"/config/{path}"):
        return []
    changes: list[Change] = [Delete(f"/config/{path}", node.version)]
    parts = path.split("/")
    if len(parts) == 4:
        clients, user = f"/config/{'/'.join(parts[:3])}", f"/config/{'/'.join(parts[:2])}"
        if await store.children(clients) == parts[3:]:
            changes.append(Delete(clients))
            of_user = await store.get(user)
            if of_user is not None and not _decoded("/".join(parts[:2]), of_user) and await store.children(user) == ["clients"]:
                changes.append(Delete(user, of_user.version))
    return changes


async def _missing_parents(store: MetadataStore, path: str) -> list[str]:
    parts = path.split("/")
    above = [f"/config/{'/'.join(parts[:count])}" for count in range(1, len(parts))]
    nodes = await each(above, store.get)
    return [parent for parent, node in zip(above, nodes, strict=True) if node is None]
