"""The index of ACLs: what a principal may do with a resource, in one lookup (AC02-AC05).

Owns the entries, and keeps for every principal and resource type what is allowed and denied as bits of operations. A decision
looks at two principals, the asked one and `User:*`, and at three places for each: the name, `*`, and the longest prefix of the
name, whose bits include those of shorter prefixes. So its cost depends neither on the number of ACLs nor on that of principals.

1. A DENY that matches beats every ALLOW (AC02).
2. Only ALLOW implies other operations: DESCRIBE by READ, WRITE, DELETE, ALTER; DESCRIBE_CONFIGS by ALTER_CONFIGS (AC03).
3. A principal or a host is equal or it is not: no case folding, no CIDR, no host names (AC04).

Compiled by mypyc: no nested functions.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final

from ottla.security.acl import (
    ALL,
    ALLOW,
    ALTER,
    ALTER_CONFIGS,
    DELETE,
    DENY,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    EVERYONE,
    LITERAL,
    OPERATION_NAMES,
    PREFIXED,
    READ,
    WILDCARD,
    WRITE,
    AclEntry,
    Acls,
    ResourcePattern,
)

EVERY_OPERATION: Final = (1 << 16) - 1
_TYPES: Final = 8
_IMPLIES_DESCRIBE: Final = 1 << READ | 1 << WRITE | 1 << DELETE | 1 << ALTER


def _with_implied(allowed: int) -> int:
    if allowed & _IMPLIES_DESCRIBE:
        allowed |= 1 << DESCRIBE
    if allowed & 1 << ALTER_CONFIGS:
        allowed |= 1 << DESCRIBE_CONFIGS
    return allowed


class Rules:
    """What is allowed to and denied one principal by the entries of one pattern, or of several: bits of operations."""

    def __init__(self) -> None:
        self.allowed = 0
        self.denied = 0
        self.by_host: dict[str, tuple[int, int]] | None = None
        """(allowed, denied) from single hosts."""

    def add(self, entry: AclEntry) -> None:
        bits = EVERY_OPERATION if entry.operation == ALL else 1 << entry.operation
        allowed, denied = (_with_implied(bits), 0) if entry.permission == ALLOW else (0, bits)
        if entry.host == WILDCARD:
            self.allowed |= allowed
            self.denied |= denied
        else:
            self._add_host(entry.host, allowed, denied)

    def add_all(self, other: Rules) -> None:
        self.allowed |= other.allowed
        self.denied |= other.denied
        if other.by_host is not None:
            for host, bits in other.by_host.items():
                self._add_host(host, bits[0], bits[1])

    def _add_host(self, host: str, allowed: int, denied: int) -> None:
        if self.by_host is None:
            self.by_host = {}
        before = self.by_host.get(host, (0, 0))
        self.by_host[host] = (before[0] | allowed, before[1] | denied)


class PrincipalRules:
    """The rules of one principal for one resource type, by pattern."""

    def __init__(self) -> None:
        self.everywhere: Rules | None = None
        """Of the LITERAL `*`."""
        self.literal: dict[str, Rules] = {}
        self.prefixed: dict[str, Rules] = {}
        self._sorted: list[str] | None = None
        """The prefixes in order; None while they have to be sorted again."""
        self._merged: list[Rules] = []
        """For each of them its rules with those of all shorter prefixes of it."""
        self._shorter: list[int] = []
        """For each of them the position of the longest prefix that it begins with; -1: none."""

    def set(self, pattern: int, name: str, rules: Rules | None) -> None:
        if pattern == PREFIXED:
            self._sorted = None
            if rules is None:
                self.prefixed.pop(name, None)
            else:
                self.prefixed[name] = rules
        elif name == WILDCARD:
            self.everywhere = rules
        elif rules is None:
            self.literal.pop(name, None)
        else:
            self.literal[name] = rules

    @property
    def empty(self) -> bool:
        return self.everywhere is None and not self.literal and not self.prefixed

    def longest_prefix(self, name: str) -> Rules | None:
        """The rules of all prefixes of a name.

        The greatest prefix that is not greater than the name begins with all prefixes of the name: they lie between.
        """
        prefixes = self._sorted
        if prefixes is None:
            prefixes = self._sort()
        at = bisect_right(prefixes, name) - 1
        while at >= 0:
            if name.startswith(prefixes[at]):
                return self._merged[at]
            at = self._shorter[at]
        return None

    def _sort(self) -> list[str]:
        prefixes = sorted(self.prefixed)
        merged: list[Rules] = []
        shorter: list[int] = []
        for position, prefix in enumerate(prefixes):
            above = position - 1
            while above >= 0 and not prefix.startswith(prefixes[above]):
                above = shorter[above]
            shorter.append(above)
            rules = self.prefixed[prefix]
            if above >= 0:
                both = Rules()
                both.add_all(merged[above])
                both.add_all(rules)
                rules = both
            merged.append(rules)
        self._sorted, self._merged, self._shorter = prefixes, merged, shorter
        return prefixes


class AclIndex:
    def __init__(self, *, allow_if_no_acl: bool = False) -> None:
        """`allow_if_no_acl`: everything is allowed on a resource to which no ACL of anyone applies."""
        self.entries: dict[ResourcePattern, frozenset[AclEntry]] = {}
        self.allow_if_no_acl = allow_if_no_acl
        self._by_principal: list[dict[str, PrincipalRules]] = [{} for _ in range(_TYPES)]
        """By resource type and principal."""
        self._any: list[PrincipalRules] = [PrincipalRules() for _ in range(_TYPES)]
        """By resource type: which patterns have entries at all."""

    def replace_all(self, acls: Acls) -> None:
        for resource in [known for known in self.entries if known not in acls]:
            self.set(resource, frozenset())
        for resource, entries in acls.items():
            if self.entries.get(resource) != entries:
                self.set(resource, entries)

    def set(self, resource: ResourcePattern, entries: frozenset[AclEntry]) -> None:
        """Replace the entries of a resource."""
        before = self.entries.get(resource, frozenset())
        rules: dict[str, Rules] = {}
        for entry in entries:
            found = rules.get(entry.principal)
            if found is None:
                found = rules[entry.principal] = Rules()
            found.add(entry)
        by_principal = self._by_principal[resource.type]
        for principal in {entry.principal for entry in before} | set(rules):
            of_principal = by_principal.get(principal)
            if of_principal is None:
                of_principal = by_principal[principal] = PrincipalRules()
            of_principal.set(resource.pattern, resource.name, rules.get(principal))
            if of_principal.empty:
                del by_principal[principal]
        self._any[resource.type].set(resource.pattern, resource.name, Rules() if entries else None)
        if entries:
            self.entries[resource] = entries
        else:
            self.entries.pop(resource, None)

    def operations(self, principal: str, host: str, resource_type: int, name: str) -> int:
        """The operations that are allowed on a resource, as bits (AC02)."""
        if self.allow_if_no_acl and not self._has_acl(resource_type, name):
            return EVERY_OPERATION
        allowed = denied = 0
        by_principal = self._by_principal[resource_type]
        for who in (principal, EVERYONE):
            of_principal = by_principal.get(who)
            if of_principal is None:
                continue
            rules = of_principal.everywhere
            if rules is not None:
                allowed |= rules.allowed
                denied |= rules.denied
                if rules.by_host is not None and host in rules.by_host:
                    bits = rules.by_host[host]
                    allowed |= bits[0]
                    denied |= bits[1]
            rules = of_principal.literal.get(name)
            if rules is not None:
                allowed |= rules.allowed
                denied |= rules.denied
                if rules.by_host is not None and host in rules.by_host:
                    bits = rules.by_host[host]
                    allowed |= bits[0]
                    denied |= bits[1]
            if of_principal.prefixed:
                rules = of_principal.longest_prefix(name)
                if rules is not None:
                    allowed |= rules.allowed
                    denied |= rules.denied
                    if rules.by_host is not None and host in rules.by_host:
                        bits = rules.by_host[host]
                        allowed |= bits[0]
                        denied |= bits[1]
        return allowed & ~denied

    def _has_acl(self, resource_type: int, name: str) -> bool:
        known = self._any[resource_type]
        return known.everywhere is not None or name in known.literal or known.longest_prefix(name) is not None

    def allows_on_any(self, principal: str, host: str, operation: int, resource_type: int) -> bool:
        """Whether there can be a resource of the type on which the operation is allowed (AC05, KIP-679).

        True if some ALLOW is covered neither by a DENY on the same name, nor on a prefix of it, nor on `*`.
        """
        denied_names: set[str] = set()
        denied_prefixes: set[str] = set()
        allowed: list[tuple[int, str]] = []
        bit = 1 << operation
        for who in {principal, EVERYONE}:
            of_principal = self._by_principal[resource_type].get(who)
            if of_principal is None:
                continue
            patterns: list[tuple[int, str, Rules]] = [(LITERAL, name, rules) for name, rules in of_principal.literal.items()]
            patterns += [(PREFIXED, name, rules) for name, rules in of_principal.prefixed.items()]
            if of_principal.everywhere is not None:
                patterns.append((LITERAL, WILDCARD, of_principal.everywhere))
            for pattern, name, rules in patterns:
                can, cannot = rules.allowed, rules.denied
                if rules.by_host is not None and host in rules.by_host:
                    bits = rules.by_host[host]
                    can, cannot = can | bits[0], cannot | bits[1]
                if cannot & bit:
                    (denied_prefixes if pattern == PREFIXED else denied_names).add(name)
                if can & bit:
                    allowed.append((pattern, name))
        if WILDCARD in denied_names:
            return False
        if self.allow_if_no_acl:
            return True
        for pattern, name in allowed:
            if pattern == LITERAL and name == WILDCARD:
                return True
            if pattern == LITERAL and name in denied_names:
                continue
            if not name.startswith(tuple(denied_prefixes)):
                return True
        return False

    def deciding(self, principal: str, host: str, operation: int, resource: ResourcePattern) -> Decision:
        """The decision with the rule that makes it. Slow: reads all ACLs."""
        found: list[tuple[ResourcePattern, AclEntry]] = []
        any_acl = False
        for pattern in sorted(self.entries):
            if pattern.type != resource.type or not pattern.covers(resource.name):
                continue
            any_acl = True
            for entry in sorted(self.entries[pattern]):
                if entry.principal in (principal, EVERYONE) and entry.host in (host, WILDCARD):
                    found.append((pattern, entry))
        if not any_acl:
            text = "no ACL applies to the resource, and allow.everyone.if.no.acl.found is "
            return Decision(self.allow_if_no_acl, text + ("true" if self.allow_if_no_acl else "false"))
        for pattern, entry in found:
            if entry.permission == DENY and entry.operation in (operation, ALL):
                return Decision(False, f"{entry} on {pattern}", pattern, entry)
        for pattern, entry in found:
            if entry.permission == ALLOW and (entry.operation == ALL or _with_implied(1 << entry.operation) >> operation & 1):
                return Decision(True, f"{entry} on {pattern}", pattern, entry)
        return Decision(False, f"no ACL allows {OPERATION_NAMES[operation]} to {principal} from {host}")


class Decision:
    def __init__(self, allowed: bool, reason: str, pattern: ResourcePattern | None = None, entry: AclEntry | None = None) -> None:
        self.allowed = allowed
        self.reason = reason
        """The rule in words."""
        self.pattern = pattern
        self.entry = entry
        """The ACL that decides; None if the absence of one does."""
