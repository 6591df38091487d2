"""ACLs: resources, operations, entries, and the filters that find them (AC01, AC07).

The numbers are those of Kafka's protocol, the names those of its znodes and of its authorizer's log ("DescribeConfigs", "Topic").
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

UNKNOWN: Final = 0
ANY: Final = 1
"""Of a filter: every resource type, operation, permission or pattern type."""

TOPIC: Final = 2
GROUP: Final = 3
CLUSTER: Final = 4
TRANSACTIONAL_ID: Final = 5
DELEGATION_TOKEN: Final = 6
USER: Final = 7

ALL: Final = 2
READ: Final = 3
WRITE: Final = 4
CREATE: Final = 5
DELETE: Final = 6
ALTER: Final = 7
DESCRIBE: Final = 8
CLUSTER_ACTION: Final = 9
DESCRIBE_CONFIGS: Final = 10
ALTER_CONFIGS: Final = 11
IDEMPOTENT_WRITE: Final = 12
CREATE_TOKENS: Final = 13
DESCRIBE_TOKENS: Final = 14
TWO_PHASE_COMMIT: Final = 15

DENY: Final = 2
ALLOW: Final = 3

MATCH: Final = 2
"""Of a filter: the patterns that apply to a name."""
LITERAL: Final = 3
PREFIXED: Final = 4

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""
WILDCARD: Final = "*"
"""As the name of a LITERAL pattern: every resource of its type. As a host: every host."""
EVERYONE: Final = "User:*"

RESOURCE_NAMES: Final = {
    TOPIC: "Topic",
    GROUP: "Group",
    CLUSTER: "Cluster",
    TRANSACTIONAL_ID: "TransactionalId",
    DELEGATION_TOKEN: "DelegationToken",
    USER: "User",
}
OPERATION_NAMES: Final = {
    ALL: "All",
    READ: "Read",
    WRITE: "Write",
    CREATE: "Create",
    DELETE: "Delete",
    ALTER: "Alter",
    DESCRIBE: "Describe",
    CLUSTER_ACTION: "ClusterAction",
    DESCRIBE_CONFIGS: "DescribeConfigs",
    ALTER_CONFIGS: "AlterConfigs",
    IDEMPOTENT_WRITE: "IdempotentWrite",
    CREATE_TOKENS: "CreateTokens",
    DESCRIBE_TOKENS: "DescribeTokens",
    TWO_PHASE_COMMIT: "TwoPhaseCommit",
}
PERMISSION_NAMES: Final = {DENY: "Deny", ALLOW: "Allow"}
PATTERN_NAMES: Final = {LITERAL: "LITERAL", PREFIXED: "PREFIXED"}


class ResourcePattern(NamedTuple):
    """The resources that an ACL is about."""

    type: int
    name: str
    pattern: int = LITERAL

    def __str__(self) -> str:
        return f"{RESOURCE_NAMES[self.type]}:{PATTERN_NAMES[self.pattern]}:{self.name}"

    def covers(self, name: str) -> bool:
        """Whether the pattern applies to a resource of its type. A PREFIXED `*` is no wildcard (AC04)."""
        if self.pattern == PREFIXED:
            return name.startswith(self.name)
        return self.name == name or self.name == WILDCARD


class AclEntry(NamedTuple):
    """Who may, or may not, do what, from where."""

    principal: str
    """Type and name, `User:alice`; `User:*` is everyone."""
    host: str
    operation: int
    permission: int

    def __str__(self) -> str:
        operation, permission = OPERATION_NAMES[self.operation], PERMISSION_NAMES[self.permission]
        return f"{permission} {operation} to {self.principal} from {self.host}"


Acls = Mapping[ResourcePattern, frozenset[AclEntry]]
"""The entries of each resource that has any."""


class AclFilter(NamedTuple):
    """Finds ACLs. None, or ANY, matches everything; operation ALL only entries with ALL (AC07)."""

    type: int = ANY
    name: str | None = None
    pattern: int = ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ANY
    permission: int = ANY

    def matches_resource(self, resource: ResourcePattern) -> bool:
        if self.type not in (ANY, resource.type):
            return False
        if self.pattern not in (ANY, MATCH, resource.pattern):
            return False
        if self.name is None:
            return True
        return resource.covers(self.name) if self.pattern == MATCH else resource.name == self.name

    def matches_entry(self, entry: AclEntry) -> bool:
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (ANY, entry.operation)
            and self.permission in (ANY, entry.permission)
        )

    def named_resources(self) -> list[ResourcePattern]:
        """The resources that the filter can match, if it names them: they need not be known yet."""
        if self.type not in RESOURCE_NAMES or not self.name:
            return []
        if self.pattern == ANY:
            return [ResourcePattern(self.type, self.name, LITERAL), ResourcePattern(self.type, self.name, PREFIXED)]
        return [ResourcePattern(self.type, self.name, self.pattern)] if self.pattern in PATTERN_NAMES else []


def supported_operations(resource_type: int) -> int:
    """The operations that a resource of the type has, as bits (AC10)."""
    return _SUPPORTED[resource_type]


def _bits(*operations: int) -> int:
    return sum(1 << operation for operation in operations)


_SUPPORTED: Final = {
    TOPIC: _bits(READ, WRITE, CREATE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    GROUP: _bits(READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS),
    CLUSTER: _bits(CREATE, ALTER, DESCRIBE, CLUSTER_ACTION, DESCRIBE_CONFIGS, ALTER_CONFIGS, IDEMPOTENT_WRITE),
    TRANSACTIONAL_ID: _bits(WRITE, DESCRIBE, TWO_PHASE_COMMIT),
    DELEGATION_TOKEN: _bits(DESCRIBE),
    USER: _bits(CREATE_TOKENS, DESCRIBE_TOKENS),
}
