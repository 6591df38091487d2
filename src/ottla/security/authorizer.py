"""The authorizer: may this session do this? Super users, the index of ACLs, and what sessions were told so far.

1. Decisions are kept until the ACLs change (`generation`): a connection that repeats itself makes none, nor does one beside it of
   the same principal and host.
2. A suspended authorizer decides nothing: it does not know whether its ACLs are still those of the cluster.

Compiled by mypyc: no nested functions.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from ottla.security.acl import AclEntry, Acls, ResourcePattern
from ottla.security.acl_index import EVERY_OPERATION, AclIndex, Decision

_TYPES: Final = 8
_KNOWN_MAX: Final = 10_000
"""Resources of one type whose decisions are kept. A client that asks for more is not an ordinary one."""


_SHARED_MAX: Final = 64
"""Principals with their hosts whose sessions share their decisions: a hundred connections of one client read the same memory."""


class Permissions:
    """What the sessions of a principal from one host may do, as far as they have asked since the ACLs changed last."""

    def __init__(self, principal: str, host: str, is_super_user: bool) -> None:
        self.principal = principal
        self.host = host
        self.is_super_user = is_super_user
        self.generation = 0
        """Of the ACLs that the decisions come from; 0: there are none yet."""
        self.known: list[dict[str, int]] = [{} for _ in range(_TYPES)]
        """Allowed operations by resource type and name, as bits."""


class Authorizer:
    def __init__(self, super_users: Iterable[str] = (), *, allow_if_no_acl: bool = False) -> None:
        """`super_users`: principals, such as `User:admin`."""
        self.super_users = frozenset(super_users)
        self.index = AclIndex(allow_if_no_acl=allow_if_no_acl)
        self.generation = 1
        """Grows with every change of the ACLs."""
        self.suspended = False
        self._shared: dict[tuple[str, str], Permissions] = {}

    def permissions(self, principal: str, host: str) -> Permissions:
        """The permissions of a new session."""
        found = self._shared.get((principal, host))
        if found is None:
            if len(self._shared) >= _SHARED_MAX:
                self._shared.clear()
            found = self._shared[principal, host] = Permissions(principal, host, principal in self.super_users)
        return found

    def refresh(self, permissions: Permissions) -> None:
        """Forget decisions that come from older ACLs."""
        if permissions.generation != self.generation:
            permissions.generation = self.generation
            permissions.known = [{} for _ in range(_TYPES)]

    def operations(self, permissions: Permissions, resource_type: int, name: str) -> int:
        """The operations that a session may perform on a resource, as bits. `permissions` is fresh."""
        known = permissions.known[resource_type]
        found = known.get(name)
        if found is not None:
            return found
        if permissions.is_super_user:
            operations = EVERY_OPERATION
        else:
            operations = self.index.operations(permissions.principal, permissions.host, resource_type, name)
        if len(known) >= _KNOWN_MAX:
            known.clear()
        known[name] = operations
        return operations

    def allows_on_any(self, permissions: Permissions, operation: int, resource_type: int) -> bool:
        """Whether the session may perform the operation on some resource of the type (AC05)."""
        if permissions.is_super_user:
            return True
        return self.index.allows_on_any(permissions.principal, permissions.host, operation, resource_type)

    def explain(self, principal: str, host: str, operation: int, resource: ResourcePattern) -> Decision:
        """The decision with the rule that makes it."""
        if principal in self.super_users:
            return Decision(True, f"{principal} is a super user")
        return self.index.deciding(principal, host, operation, resource)

    # Changes of the ACLs

    def replace_all(self, acls: Acls) -> None:
        self.index.replace_all(acls)
        self.generation += 1

    def set(self, resource: ResourcePattern, entries: frozenset[AclEntry]) -> None:
        self.index.set(resource, entries)
        self.generation += 1

    def suspend(self) -> None:
        """Until `resume` no session is told anything: each asks anew, and finds the authorizer suspended."""
        self.suspended = True
        self.generation += 1

    def resume(self) -> None:
        self.suspended = False


def parse_super_users(text: str) -> frozenset[str]:
    """`super.users`: principals separated by semicolons, since a distinguished name has commas. ValueError names a bad one."""
    found = [each.strip() for each in text.split(";") if each.strip()]
    for each in found:
        kind, colon, name = each.partition(":")
        if not kind or not colon or not name:
            raise ValueError(f"{each!r} is no principal: write it as type and name, such as User:admin")
    return frozenset(found)
