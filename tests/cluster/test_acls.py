"""ACLs in a cluster: Kafka's tool, an admin client, and a broker of Apache Kafka on the same nodes (AC08, AC09)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from ottla.protocol.messages.describe_acls import DescribeAclsRequest
from tests.kit.apache_kafka import ApacheBroker
from tests.kit.cluster import Cluster, ask_at, until
from tests.kit.peers import run_tool

ACL_AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"
SECURED = {"authorizer_class_name": ACL_AUTHORIZER, "super_users": "User:ANONYMOUS"}
Listed = set[tuple[str, int, str, int, int]]


def acls_at(address: str) -> Listed:
    """(name, pattern type, principal, operation, permission) of all ACLs that a broker knows."""
    nothing = dict.fromkeys(("resource_name_filter", "principal_filter", "host_filter"))
    request = DescribeAclsRequest(resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1, **nothing)
    told = ask_at(address, "describe_acls", 2, request)
    assert told.error_code == 0
    return {
        (each.resource_name, each.pattern_type, acl.principal, acl.operation, acl.permission_type)
        for each in told.resources
        for acl in each.acls
    }


def tool(address: str, *arguments: str, version: str = "3.9.2") -> str:
    name = "kafka.admin.AclCommand" if version.startswith("3") else "org.apache.kafka.tools.AclCommand"
    return run_tool(version, name, "--bootstrap-server", address, *arguments, timeout=120, check=True).stdout


@pytest.mark.java
@pytest.mark.slow
@pytest.mark.parametrize("version", ["3.9.2", "4.3.0"])
def test_ac09_kafkas_tool_changes_acls_on_every_broker_at_once(cluster: Callable[..., Cluster], version: str) -> None:
    three = cluster(3, **SECURED)
    addresses = [broker.address for broker in three.brokers.values()]
    tool(addresses[0], "--add", "--allow-principal", "User:a", "--producer", "--topic", "orders", version=version)
    expected: Listed = {("orders", 3, "User:a", operation, 3) for operation in (4, 5, 8)}
    for address in addresses:
        assert acls_at(address) == expected
    tool(
        addresses[1],
        *("--add", "--deny-principal", "User:b", "--operation", "Read", "--topic", "ord"),
        *("--resource-pattern-type", "prefixed"),
        version=version,
    )
    expected |= {("ord", 4, "User:b", 3, 2)}
    for address in addresses:
        assert acls_at(address) == expected
    shown = tool(addresses[2], "--list", "--topic", "orders", "--resource-pattern-type", "match", version=version)
    assert "principal=User:b, host=*, operation=READ, permissionType=DENY" in shown
    tool(addresses[2], "--remove", "--force", "--topic", "orders", version=version)
    for address in addresses:
        assert acls_at(address) == {("ord", 4, "User:b", 3, 2)}


def test_ac09_an_admin_client_finds_its_acls_on_every_broker(cluster: Callable[..., Cluster]) -> None:
    three = cluster(3, **SECURED)
    addresses = [broker.address for broker in three.brokers.values()]
    binding = AclBinding(
        ResourceType.TOPIC,
        "orders",
        ResourcePatternType.LITERAL,
        "User:a",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )
    anything: Any = None
    any_acl = AclBindingFilter(
        ResourceType.ANY, anything, ResourcePatternType.ANY, anything, anything, AclOperation.ANY, AclPermissionType.ANY
    )
    for number in range(10):
        admin: Any = AdminClient({"bootstrap.servers": addresses[number % 3]})
        admin.create_acls([binding])[binding].result(60)
        for address in addresses:
            assert acls_at(address) == {("orders", 3, "User:a", 3, 3)}
        assert [each.name for each in admin.describe_acls(any_acl).result(60)] == ["orders"]
        assert [each.principal for each in admin.delete_acls([any_acl])[any_acl].result(60)] == ["User:a"]
        for address in addresses:
            assert acls_at(address) == set()
    # A broker that dies is waited for until its registration is gone, not longer. The controller stays: librdkafka does not look
    # for another one.
    dead = next(number for number in three.brokers if number != three.controller())
    three.brokers[dead].kill()
    alive = sorted(three.brokers.keys() - {dead})
    admin = AdminClient({"bootstrap.servers": three.brokers[alive[0]].address})
    admin.create_acls([binding])[binding].result(60)
    assert acls_at(three.brokers[alive[1]].address) == {("orders", 3, "User:a", 3, 3)}
    assert three.live_brokers() == set(alive)


@pytest.mark.java
@pytest.mark.slow
def test_ac08_a_broker_of_apache_kafka_shares_the_acls(cluster: Callable[..., Cluster]) -> None:
    two = cluster(2, **SECURED)
    ours = two.brokers[1].address
    kafka = ApacheBroker(two, 3, **{"authorizer.class.name": ACL_AUTHORIZER, "super.users": "User:ANONYMOUS"})
    kafka.start()
    try:
        until(lambda: acls_at(kafka.address) == set(), "Apache Kafka answers")
        tool(ours, "--add", "--allow-principal", "User:a", "--operation", "Read", "--topic", "orders")
        tool(
            ours,
            "--add",
            "--deny-principal",
            "User:b",
            "--operation",
            "All",
            "--group",
            "g",
            "--resource-pattern-type",
            "prefixed",
        )
        written: Listed = {("orders", 3, "User:a", 3, 3), ("g", 4, "User:b", 2, 2)}
        until(lambda: acls_at(kafka.address) == written, "Apache Kafka knows ours")
        tool(kafka.address, "--add", "--allow-principal", "User:c", "--operation", "DescribeConfigs", "--cluster")
        tool(kafka.address, "--remove", "--force", "--topic", "orders")
        written = {("g", 4, "User:b", 2, 2), ("kafka-cluster", 3, "User:c", 10, 3)}
        for broker in two.brokers.values():
            until(lambda broker=broker: acls_at(broker.address) == written, "ours know Apache Kafka's")
    finally:
        kafka.kill()
