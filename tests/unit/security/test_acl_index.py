"""Decisions by ACLs, compared with a model that reads all of them (AC02-AC05)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

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
    GROUP,
    LITERAL,
    PREFIXED,
    READ,
    TOPIC,
    WILDCARD,
    WRITE,
    AclEntry,
    ResourcePattern,
)
from ottla.security.acl_index import AclIndex

ALICE, BOB = "User:alice", "User:bob"
HERE, THERE = "10.0.0.1", "10.0.0.2"
IMPLIED = {DESCRIBE: (DESCRIBE, READ, WRITE, DELETE, ALTER), DESCRIBE_CONFIGS: (DESCRIBE_CONFIGS, ALTER_CONFIGS)}

operations = st.sampled_from([ALL, READ, WRITE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS])
asked_operations = st.sampled_from([READ, WRITE, DELETE, ALTER, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS])
names = st.sampled_from(["a", "ab", "abc", "abd", "ac", "b", "ba", "*", "*a"])
patterns = st.builds(ResourcePattern, st.sampled_from([TOPIC, GROUP]), names, st.sampled_from([LITERAL, PREFIXED]))
entries = st.builds(
    AclEntry,
    st.sampled_from([ALICE, BOB, EVERYONE]),
    st.sampled_from([HERE, THERE, WILDCARD]),
    operations,
    st.sampled_from([ALLOW, DENY]),
)
acls = st.dictionaries(patterns, st.frozensets(entries, max_size=3), max_size=8)


def applies(entry: AclEntry, principal: str, host: str, permission: int, wanted: tuple[int, ...]) -> bool:
    return (
        entry.principal in (principal, EVERYONE)
        and entry.host in (host, WILDCARD)
        and entry.permission == permission
        and entry.operation in (*wanted, ALL)
    )


def naive(
    given_acls: dict[ResourcePattern, frozenset[AclEntry]],
    everyone: bool,
    principal: str,
    host: str,
    op: int,
    kind: int,
    name: str,
) -> bool:
    found = [
        entry
        for pattern, some in given_acls.items()
        for entry in some
        if pattern.type == kind
        and (
            (pattern.pattern == LITERAL and pattern.name in (name, "*"))
            or (pattern.pattern == PREFIXED and name.startswith(pattern.name))
        )
    ]
    if not found:
        return everyone
    if any(applies(entry, principal, host, DENY, (op,)) for entry in found):
        return False
    return any(applies(entry, principal, host, ALLOW, IMPLIED.get(op, (op,))) for entry in found)


def naive_on_any(given_acls: dict[ResourcePattern, frozenset[AclEntry]], everyone: bool, principal: str, op: int) -> bool:
    def having(permission: int) -> list[ResourcePattern]:
        return [
            pattern
            for pattern, some in given_acls.items()
            if pattern.type == TOPIC and any(applies(entry, principal, HERE, permission, (op,)) for entry in some)
        ]

    denied = having(DENY)
    if ResourcePattern(TOPIC, WILDCARD) in denied:
        return False
    if everyone:
        return True
    for pattern in having(ALLOW):
        if pattern == ResourcePattern(TOPIC, WILDCARD):
            return True
        if not any(each == pattern or (each.pattern == PREFIXED and pattern.name.startswith(each.name)) for each in denied):
            return True
    return False


@given(
    acls, st.booleans(), st.sampled_from([ALICE, BOB, "User:carol", EVERYONE]), st.sampled_from([HERE, THERE]), asked_operations
)
def test_ac02_ac03_ac04_every_decision_is_that_of_the_model(
    given_acls: dict[ResourcePattern, frozenset[AclEntry]], everyone: bool, principal: str, host: str, op: int
) -> None:
    index = AclIndex(allow_if_no_acl=everyone)
    index.replace_all({pattern: some for pattern, some in given_acls.items() if some})
    for kind in (TOPIC, GROUP):
        for name in ("a", "ab", "abc", "abcd", "b", "c", "*", "", "*ab", "bab"):
            wanted = naive(given_acls, everyone, principal, host, op, kind, name)
            assert bool(index.operations(principal, host, kind, name) >> op & 1) == wanted, name
            told = index.deciding(principal, host, op, ResourcePattern(kind, name))
            assert told.allowed == wanted
            if told.entry is not None:
                assert told.pattern is not None
                assert told.entry in given_acls[told.pattern]


@given(acls, st.booleans(), st.sampled_from([ALICE, BOB]), st.sampled_from([WRITE, READ]))
def test_ac05_write_on_any_topic_is_that_of_the_model(
    given_acls: dict[ResourcePattern, frozenset[AclEntry]], everyone: bool, principal: str, op: int
) -> None:
    index = AclIndex(allow_if_no_acl=everyone)
    index.replace_all({pattern: some for pattern, some in given_acls.items() if some})
    assert index.allows_on_any(principal, HERE, op, TOPIC) == naive_on_any(given_acls, everyone, principal, op)


@given(st.lists(st.tuples(patterns, st.frozensets(entries, max_size=2)), max_size=20), st.booleans())
def test_changes_one_by_one_end_as_all_at_once(
    changes: list[tuple[ResourcePattern, frozenset[AclEntry]]], everyone: bool
) -> None:
    index = AclIndex(allow_if_no_acl=everyone)
    for number, (pattern, some) in enumerate(changes):
        index.set(pattern, some)
        if number % 3 == 0:
            index.operations(ALICE, HERE, TOPIC, "abc")  # sorts the prefixes
    whole = AclIndex(allow_if_no_acl=everyone)
    whole.replace_all({pattern: some for pattern, some in dict(changes).items() if some})
    assert index.entries == whole.entries
    for who in (ALICE, BOB, EVERYONE):
        for kind in (TOPIC, GROUP):
            for name in ("a", "ab", "abc", "abd", "b", "*", "x"):
                assert index.operations(who, HERE, kind, name) == whole.operations(who, HERE, kind, name)


def index_of(*rules: tuple[ResourcePattern, AclEntry]) -> AclIndex:
    index = AclIndex()
    for pattern, entry in rules:
        index.set(pattern, index.entries.get(pattern, frozenset()) | {entry})
    return index


def may(index: AclIndex, op: int, name: str = "orders", principal: str = ALICE, host: str = HERE) -> bool:
    return bool(index.operations(principal, host, TOPIC, name) >> op & 1)


ORDERS = ResourcePattern(TOPIC, "orders")


def test_ac03_only_allow_implies_describe() -> None:
    index = index_of((ORDERS, AclEntry(ALICE, "*", READ, ALLOW)))
    assert may(index, DESCRIBE)
    assert not may(index, DESCRIBE_CONFIGS)
    denied_read = index_of((ORDERS, AclEntry(ALICE, "*", READ, DENY)), (ORDERS, AclEntry(ALICE, "*", DESCRIBE, ALLOW)))
    assert may(denied_read, DESCRIBE)
    denied_describe = index_of((ORDERS, AclEntry(ALICE, "*", READ, ALLOW)), (ORDERS, AclEntry(ALICE, "*", DESCRIBE, DENY)))
    assert may(denied_describe, READ)
    assert not may(denied_describe, DESCRIBE)


def test_ac04_a_prefixed_star_is_no_wildcard_and_names_are_exact() -> None:
    assert not may(index_of((ResourcePattern(TOPIC, "*", PREFIXED), AclEntry(ALICE, "*", READ, ALLOW))), READ)
    exact = index_of((ORDERS, AclEntry(ALICE, HERE, READ, ALLOW)))
    assert may(exact, READ)
    assert not may(exact, READ, host=THERE)
    assert not may(exact, READ, name="Orders")
    assert not may(exact, READ, principal="User:Alice")
    assert not may(exact, READ, principal="Group:alice")


def test_cv06_of_three_acls_one_is_removed_and_two_hold() -> None:
    everyone, alice, bob = (AclEntry(who, "*", READ, DENY) for who in (EVERYONE, ALICE, BOB))
    index = index_of(
        (ORDERS, everyone), (ORDERS, alice), (ORDERS, bob), (ResourcePattern(TOPIC, "*"), AclEntry(EVERYONE, "*", ALL, ALLOW))
    )
    index.set(ORDERS, index.entries[ORDERS] - {everyone})
    assert not may(index, READ)
    assert not may(index, READ, principal=BOB)
    assert may(index, READ, principal="User:carol")


def test_the_deciding_rule_is_told_in_words() -> None:
    prefix = ResourcePattern(TOPIC, "ord", PREFIXED)
    index = index_of((prefix, AclEntry(ALICE, HERE, WRITE, DENY)), (ORDERS, AclEntry(EVERYONE, "*", ALL, ALLOW)))
    told = index.deciding(ALICE, HERE, WRITE, ORDERS)
    assert (told.allowed, told.reason) == (False, "Deny Write to User:alice from 10.0.0.1 on Topic:PREFIXED:ord")
    assert index.deciding(ALICE, THERE, WRITE, ORDERS).reason == "Allow All to User:* from * on Topic:LITERAL:orders"
    assert "allow.everyone.if.no.acl.found is false" in index.deciding(ALICE, HERE, READ, ResourcePattern(GROUP, "g")).reason
    assert (
        index.deciding(BOB, HERE, READ, ResourcePattern(TOPIC, "order")).reason == "no ACL allows Read to User:bob from 10.0.0.1"
    )
