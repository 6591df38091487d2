"""Copies the ACLs of mirrored topics. WRITE is left out: only the mirror writes there. Nothing is removed."""

from __future__ import annotations

from collections.abc import Mapping

from ottla.cli.acl import acls_of, create_acls
from ottla.cli.connection import Connection
from ottla.security.acl import LITERAL, TOPIC, WRITE, AclEntry, ResourcePattern


def copy_acls(source: Connection, target: Connection, names: Mapping[str, str], prefix: str) -> list[str]:
    """Create the ACLs of these topics that the target lacks. Returns them in words."""
    have = set(acls_of(target, []))
    missing = [acl for acl in _renamed(acls_of(source, []), names, prefix) if acl not in have]
    if missing:
        create_acls(target, missing)
    return [f"{entry} on {pattern}" for pattern, entry in missing]


def _renamed(
    acls: list[tuple[ResourcePattern, AclEntry]], names: Mapping[str, str], prefix: str
) -> list[tuple[ResourcePattern, AclEntry]]:
    """The ACLs of the mirrored topics, under the names of the target."""
    found = []
    for pattern, entry in acls:
        if pattern.type != TOPIC or entry.operation == WRITE:
            continue
        if pattern.pattern == LITERAL:
            name = names.get(pattern.name)  # not `*`, which would open other topics of the target
        else:
            name = prefix + pattern.name if any(topic.startswith(pattern.name) for topic in names) else None
        if name is not None:
            found.append((ResourcePattern(TOPIC, name, pattern.pattern), entry))
    return found
