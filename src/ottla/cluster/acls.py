"""ACLs in the metadata tree (F59): parses the nodes and notifications that Kafka's AclAuthorizer writes.

Pure. Covers /kafka-acl, /kafka-acl-extended and the notifications of their changes. The ACLs are not enforced yet.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla.ports import StoreError

ACLS: Final = "/kafka-acl"
"""ACLs of literal resource names, and of "*"."""
ACLS_EXTENDED: Final = "/kafka-acl-extended"
"""ACLs by pattern type: prefixed."""
ACL_CHANGES: Final = "/kafka-acl-changes"
ACL_CHANGES_EXTENDED: Final = "/kafka-acl-extended-changes"
CHANGE_PREFIX: Final = "acl_changes_"

LITERAL: Final = "LITERAL"
_RESOURCES: Final = {
    "TOPIC": "Topic",
    "GROUP": "Group",
    "CLUSTER": "Cluster",
    "TRANSACTIONAL_ID": "TransactionalId",
    "DELEGATION_TOKEN": "DelegationToken",
    "USER": "User",
}
"""Resource types: as in a notification, and as in the path of the ACLs."""


class Resource(NamedTuple):
    kind: str
    """As in the path."""
    name: str
    pattern: str = LITERAL


@dataclass(frozen=True, slots=True)
class AclEntry:
    principal: str
    host: str
    operation: str
    permission: str


Acls = Mapping[Resource, frozenset[AclEntry]]


def acl_path(resource: Resource) -> str:
    return f"{acl_root(resource.pattern)}/{resource.kind}/{resource.name}"


def acl_root(pattern: str) -> str:
    return ACLS if pattern == LITERAL else f"{ACLS_EXTENDED}/{pattern.lower()}"


def decode_acls(path: str, data: bytes) -> frozenset[AclEntry]:
    """StoreError if the node cannot be parsed."""
    try:
        fields = json.loads(data)
        return frozenset(
            AclEntry(each["principal"], each["host"], each["operation"], each["permissionType"]) for each in fields["acls"]
        )
    except (ValueError, KeyError, TypeError) as error:
        raise StoreError(f"{path} cannot be parsed: {error!r}") from error


def decode_acl_change(data: bytes) -> Resource | None:
    """The resource that a notification names, in either format; None if it cannot be parsed."""
    try:
        text = data.decode()
        if not text.startswith("{"):
            kind, _, name = text.partition(":")
            return _resource(kind, name, LITERAL)
        fields = json.loads(text)
        return _resource(fields["resourceType"], fields["name"], fields["patternType"])
    except (ValueError, KeyError, TypeError, AttributeError):
        return None


def _resource(kind: str, name: str, pattern: str) -> Resource | None:
    known = _RESOURCES.get(kind.upper()) or next((each for each in _RESOURCES.values() if each.upper() == kind.upper()), None)
    return Resource(known, name, pattern.upper()) if known and name else None
