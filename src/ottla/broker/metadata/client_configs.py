"""Users, client ids and addresses in the metadata tree: reading what is set for them, and writing it.

Owns: the nodes /config/users, /config/clients, /config/ips and below. A change leaves a notice under /config/changes, as Kafka's
does: every broker of a cluster reads anew what it names. Never decides what may be set (`cluster.client_entities`).

1. A change is made from what the tree has, and only if it still has it; with its notice it is one write.
2. A node somebody spoiled counts as nothing set, and says so in the log; the others are read all the same.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping

from ottla.broker.metadata.tree import each
from ottla.cluster import znodes
from ottla.cluster.client_entities import ClientConfigs, Entity, entity_of, entity_path
from ottla.ports import BadVersion, Change, Create, MetadataStore, Node, NodeExists, NoNode, SetData, StoreError

logger = logging.getLogger(__name__)


async def load_client_configs(store: MetadataStore) -> ClientConfigs:
    """All there are that have anything set."""
    paths: list[str] = []
    for kind in ("users", "clients", "ips"):
        paths += [f"{kind}/{name}" for name in await store.children(f"/config/{kind}")]
    users = [path for path in paths if path.startswith("users/")]
    for user, names in zip(users, await each(users, lambda path: store.children(f"/config/{path}/clients")), strict=True):
        paths += [f"{user}/clients/{name}" for name in names]
    found = await each(paths, lambda path: load_client_config(store, path))
    entities = [(entity_of(path), config) for path, config in zip(paths, found, strict=True)]
    return {one: config for one, config in entities if one is not None and config}


async def load_client_config(store: MetadataStore, path: str) -> Mapping[str, str]:
    """`path`: below /config. Empty where nothing is set."""
    return _decoded(path, await store.get(f"/config/{path}"))


def _decoded(path: str, node: Node | None) -> dict[str, str]:
    if node is None or not node.data:
        # Above what is set for a client id of a user there may be a node with nothing in it.
        return {}
    try:
        return znodes.decode_config(f"/config/{path}", node.data)
    except StoreError as error:
        logger.error("%s; it counts as nothing set", error)
        return {}


async def alter_client_config(
    store: MetadataStore, one: Entity, plan: Callable[[Mapping[str, str]], dict[str, str]], *, validate_only: bool = False
) -> dict[str, str]:
    """Have `plan` say what is to be set in place of what is. What it raises is raised."""
    path = entity_path(one)
    full_path = f"/config/{path}"
    notice = Create(znodes.CONFIG_CHANGE, znodes.encode_config_change(path), sequential=True)
    while True:
        node = await store.get(full_path)
        present = _decoded(path, node)
        config = plan(present)
        if validate_only or config == present:
            return config
        data = znodes.encode_config(config)
        changes: list[Change] = []
        if node is not None:
            changes = [SetData(full_path, data, node.version)]
        else:
            changes = [Create(parent) for parent in await _missing_parents(store, path)]
            changes.append(Create(full_path, data))
        try:
            await store.multi([*changes, notice])
        except (BadVersion, NodeExists, NoNode):
            continue
        return config


async def _missing_parents(store: MetadataStore, path: str) -> list[str]:
    parts = path.split("/")
    above = [f"/config/{'/'.join(parts[:count])}" for count in range(1, len(parts))]
    nodes = await each(above, store.get)
    return [parent for parent, node in zip(above, nodes, strict=True) if node is None]
