"""ACLs in the metadata tree: the nodes and notifications of Kafka's AclAuthorizer, read and written (AC08).

Pure. A node that cannot be parsed denies everything to everyone (`UNREADABLE`): to ignore it could lift a DENY.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Final

from ottla.ports import StoreError
from ottla.security.acl import (
    ALL,
    DENY,
    EVERYONE,
    LITERAL,
    OPERATION_NAMES,
    PATTERN_NAMES,
    PERMISSION_NAMES,
    PREFIXED,
    RESOURCE_NAMES,
    WILDCARD,
    AclEntry,
    ResourcePattern,
)

ACLS: Final = "/kafka-acl"
"""ACLs of literal resource names, and of "*"."""
ACLS_EXTENDED: Final = "/kafka-acl-extended"
"""ACLs by pattern type: prefixed."""
ACL_CHANGES: Final = "/kafka-acl-changes"
ACL_CHANGES_EXTENDED: Final = "/kafka-acl-extended-changes"
CHANGE_PREFIX: Final = "acl_changes_"
ACKNOWLEDGED: Final = "/ottla-acl-acknowledged"
"""Below it one node for each live broker of Ottla with an authorizer: the notifications that it enforces."""

UNREADABLE: Final = frozenset({AclEntry(EVERYONE, WILDCARD, ALL, DENY)})

_VERSION: Final = 1


def _folded(name: str) -> str:
    """Kafka reads names in camel case and in upper case with underscores."""
    return name.replace("_", "").lower()


_TYPES: Final = {_folded(name): number for number, name in RESOURCE_NAMES.items()}
_OPERATIONS: Final = {_folded(name): number for number, name in OPERATION_NAMES.items()}
_PERMISSIONS: Final = {_folded(name): number for number, name in PERMISSION_NAMES.items()}
_PATTERNS: Final = {_folded(name): number for number, name in PATTERN_NAMES.items()}
_UPPER: Final = {
    number: "".join(f"_{letter}" if letter.isupper() else letter for letter in name).strip("_").upper()
    for number, name in RESOURCE_NAMES.items()
}
"""Resource types as notifications name them: TRANSACTIONAL_ID."""


def acl_root(pattern: int) -> str:
    return ACLS if pattern == LITERAL else f"{ACLS_EXTENDED}/{PATTERN_NAMES[pattern].lower()}"


def acl_path(resource: ResourcePattern) -> str:
    return f"{acl_root(resource.pattern)}/{RESOURCE_NAMES[resource.type]}/{resource.name}"


def base_paths() -> list[str]:
    """The nodes that Kafka's authorizer creates at its first start, parents first."""
    paths = []
    for pattern, above in ((LITERAL, []), (PREFIXED, [ACLS_EXTENDED])):
        root = acl_root(pattern)
        paths += [*above, root, *(f"{root}/{name}" for name in RESOURCE_NAMES.values())]
    return [*paths, ACL_CHANGES, ACL_CHANGES_EXTENDED]


def resource_type_of(node_name: str) -> int | None:
    """The resource type whose ACLs are below a node; None if Kafka has no such type."""
    return _TYPES.get(_folded(node_name))


def encode_acls(entries: Iterable[AclEntry]) -> bytes:
    acls = [
        {
            "principal": entry.principal,
            "permissionType": PERMISSION_NAMES[entry.permission],
            "operation": OPERATION_NAMES[entry.operation],
            "host": entry.host,
        }
        for entry in sorted(entries)
    ]
    return json.dumps({"version": _VERSION, "acls": acls}, separators=(",", ":"), ensure_ascii=False).encode()


def decode_acls(path: str, data: bytes) -> frozenset[AclEntry]:
    """StoreError if the node cannot be parsed."""
    if not data:
        return frozenset()
    try:
        fields = json.loads(data)
        if fields["version"] != _VERSION:
            raise ValueError(f"version {fields['version']!r}")
        return frozenset(_entry(each) for each in fields["acls"])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise StoreError(f"{path} cannot be parsed: {error!r}") from error


def _entry(fields: dict[str, str]) -> AclEntry:
    principal, host = fields["principal"], fields["host"]
    if not isinstance(host, str):
        raise ValueError(f"host {host!r}")
    (principal + host).encode()  # ValueError for half of a surrogate pair: it could not be written again
    operation, permission = _OPERATIONS[_folded(fields["operation"])], _PERMISSIONS[_folded(fields["permissionType"])]
    return AclEntry(check_principal(principal), host, operation, permission)


def check_principal(principal: str) -> str:
    """ValueError unless it is a type and a name, `User:alice`."""
    kind, colon, _ = principal.partition(":")
    if not kind or not colon:
        raise ValueError(f"{principal!r} is no principal: write it as type and name, such as User:alice")
    return principal


def change_path(pattern: int) -> str:
    """Where a change of ACLs of the pattern type is notified, without the sequence number."""
    return f"{ACL_CHANGES if pattern == LITERAL else ACL_CHANGES_EXTENDED}/{CHANGE_PREFIX}"


def encode_acl_change(resource: ResourcePattern) -> bytes:
    if resource.pattern == LITERAL:
        return f"{_UPPER[resource.type]}:{resource.name}".encode()
    fields = {
        "version": _VERSION,
        "resourceType": _UPPER[resource.type],
        "name": resource.name,
        "patternType": PATTERN_NAMES[resource.pattern],
    }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def decode_acl_change(data: bytes) -> ResourcePattern | None:
    """The resource that a notification names, in either format; None if it cannot be parsed."""
    try:
        text = data.decode()
        if not text.startswith("{"):
            kind, _, name = text.partition(":")
            return _resource(kind, name, LITERAL)
        fields = json.loads(text)
        return _resource(fields["resourceType"], fields["name"], _PATTERNS[_folded(fields["patternType"])])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _resource(kind: str, name: str, pattern: int) -> ResourcePattern | None:
    known = _TYPES.get(_folded(kind))
    name.encode()
    return ResourcePattern(known, name, pattern) if known is not None and isinstance(name, str) and name else None


def acknowledged_path(broker_id: int) -> str:
    return f"{ACKNOWLEDGED}/{broker_id}"


def encode_acknowledged(literal: int, prefixed: int) -> bytes:
    """The numbers of the last notification of each kind that a broker enforces; -1: none yet."""
    return json.dumps({"version": _VERSION, "literal": literal, "prefixed": prefixed}).encode()


def decode_acknowledged(data: bytes) -> tuple[int, int]:
    """(literal, prefixed). What cannot be parsed acknowledges nothing."""
    try:
        fields = json.loads(data)
        return int(fields["literal"]), int(fields["prefixed"])
    except (ValueError, KeyError, TypeError, RecursionError):
        return -1, -1
