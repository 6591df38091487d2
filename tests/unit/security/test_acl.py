"""ACLs and the filters that find them (AC01, AC07, AC10)."""

from __future__ import annotations

import pytest

from ottla.security.acl import (
    ALL,
    ALLOW,
    ANY,
    CLUSTER,
    DENY,
    GROUP,
    LITERAL,
    MATCH,
    OPERATION_NAMES,
    PREFIXED,
    READ,
    RESOURCE_NAMES,
    TOPIC,
    WRITE,
    AclEntry,
    AclFilter,
    ResourcePattern,
    supported_operations,
)

ORDERS, ORD, EVERY = ResourcePattern(TOPIC, "orders"), ResourcePattern(TOPIC, "ord", PREFIXED), ResourcePattern(TOPIC, "*")


def test_ac01_the_numbers_are_kafkas() -> None:
    assert dict(enumerate(["Topic", "Group", "Cluster", "TransactionalId", "DelegationToken", "User"], 2)) == RESOURCE_NAMES
    assert list(OPERATION_NAMES) == list(range(2, 16))
    assert (DENY, ALLOW, ANY, MATCH, LITERAL, PREFIXED) == (2, 3, 1, 2, 3, 4)


def found(acl_filter: AclFilter) -> set[ResourcePattern]:
    return {each for each in (ORDERS, ORD, EVERY, ResourcePattern(GROUP, "orders")) if acl_filter.matches_resource(each)}


def test_ac07_pattern_types_of_a_filter() -> None:
    assert found(AclFilter()) == {ORDERS, ORD, EVERY, ResourcePattern(GROUP, "orders")}
    assert found(AclFilter(TOPIC, "orders", MATCH)) == {ORDERS, ORD, EVERY}
    assert found(AclFilter(TOPIC, "orders", ANY)) == {ORDERS}
    assert found(AclFilter(TOPIC, "orders", LITERAL)) == {ORDERS}
    assert found(AclFilter(TOPIC, "ord", PREFIXED)) == {ORD}
    assert found(AclFilter(TOPIC, "order", MATCH)) == {ORD, EVERY}
    assert found(AclFilter(TOPIC, None, PREFIXED)) == {ORD}
    assert found(AclFilter(ANY, "orders", LITERAL)) == {ORDERS, ResourcePattern(GROUP, "orders")}


def test_ac07_all_finds_only_entries_with_all() -> None:
    read, everything = AclEntry("User:a", "*", READ, ALLOW), AclEntry("User:a", "*", ALL, ALLOW)
    assert not AclFilter(operation=ALL).matches_entry(read)
    assert AclFilter(operation=ALL).matches_entry(everything)
    assert AclFilter(operation=ANY).matches_entry(read)
    assert not AclFilter(operation=WRITE).matches_entry(everything)
    assert not AclFilter(principal="User:*").matches_entry(read)
    assert not AclFilter(host="10.0.0.1").matches_entry(read)
    assert not AclFilter(permission=DENY).matches_entry(read)


def test_named_resources_are_those_a_filter_can_match() -> None:
    assert AclFilter(TOPIC, "t", ANY).named_resources() == [ResourcePattern(TOPIC, "t"), ResourcePattern(TOPIC, "t", PREFIXED)]
    assert AclFilter(TOPIC, "t", PREFIXED).named_resources() == [ResourcePattern(TOPIC, "t", PREFIXED)]
    for many in (AclFilter(TOPIC, "t", MATCH), AclFilter(TOPIC), AclFilter(ANY, "t")):
        assert many.named_resources() == []


@pytest.mark.parametrize(
    ("kind", "operations"),
    [(TOPIC, [3, 4, 5, 6, 7, 8, 10, 11]), (GROUP, [3, 6, 8, 10, 11]), (CLUSTER, [5, 7, 8, 9, 10, 11, 12])],
)
def test_ac10_the_operations_of_a_type(kind: int, operations: list[int]) -> None:
    assert supported_operations(kind) == sum(1 << operation for operation in operations)
