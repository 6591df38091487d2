"""`ottla acl`: what the options mean, and the rule that decides."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from ottla.testing import Broker
from tests.kit.ottla_command import Ottla


@pytest.fixture(scope="module")
def guarded() -> Iterator[Ottla]:
    """A broker with ACLs whose anonymous clients are super users."""
    settings = {"authorizer.class.name": "kafka.security.authorizer.AclAuthorizer", "super.users": "User:ANONYMOUS;User:admin"}
    with Broker(settings) as broker:
        yield Ottla(broker.bootstrap_servers)


def listed(ottla: Ottla, *words: str) -> list[tuple[str, ...]]:
    found: list[dict[str, Any]] = json.loads(ottla.ok("acl", "list", "--json", *words))
    return sorted((each["resource"], each["name"], each["principal"], each["operation"], each["permission"]) for each in found)


def test_what_a_producer_and_a_consumer_need(guarded: Ottla) -> None:
    guarded.ok("acl", "add", "-u", "alice", "--producer", "-t", "bills", "--transactional-id", "tx")
    assert listed(guarded, "-u", "alice") == [
        ("Topic", "bills", "User:alice", "Create", "Allow"),
        ("Topic", "bills", "User:alice", "Describe", "Allow"),
        ("Topic", "bills", "User:alice", "Write", "Allow"),
        ("TransactionalId", "tx", "User:alice", "Describe", "Allow"),
        ("TransactionalId", "tx", "User:alice", "Write", "Allow"),
    ]
    guarded.ok("acl", "add", "-u", "bob", "--consumer", "-t", "bills", "-g", "readers")
    assert listed(guarded, "-u", "bob", "-t", "bills") == [
        ("Topic", "bills", "User:bob", "Describe", "Allow"),
        ("Topic", "bills", "User:bob", "Read", "Allow"),
    ]
    guarded.ok("acl", "remove", "-u", "alice", "--producer", "-t", "bills", "--transactional-id", "tx")
    assert listed(guarded, "-u", "alice") == []
    assert listed(guarded, "-u", "bob", "-g", "readers") == [("Group", "readers", "User:bob", "Read", "Allow")]


def test_the_rule_that_decides_is_named(guarded: Ottla) -> None:
    guarded.ok("acl", "add", "-u", "carol", "-o", "read", "-t", "pay", "--prefixed")
    guarded.ok("acl", "add", "-u", "User:*", "--deny", "-o", "all", "-t", "payroll")

    def check(*words: str, code: int = 0) -> str:
        done = guarded.run("acl", "list", "--check", *words)
        assert done.returncode == code, done.stderr
        return done.stdout

    assert check("carol", "describe", "topic:payments") == "allowed: Allow Read to User:carol from * on Topic:PREFIXED:pay\n"
    assert check("carol", "read", "topic:payroll", code=1) == "denied: Deny All to User:* from * on Topic:LITERAL:payroll\n"
    assert "no ACL allows Write" in check("carol", "write", "topic:payments", code=1)
    assert "no ACL applies" in check("carol", "alter", "cluster", code=1)
    assert check("admin", "alter", "cluster") == "allowed: User:admin is a super user\n"
    assert '"allowed": false' in check("carol", "write", "topic:payments", "--json", code=1)


def test_remove_takes_only_what_is_named(guarded: Ottla) -> None:
    for name in ("dave", "erin"):
        guarded.ok("acl", "add", "-u", name, "-o", "read", "-o", "describe-configs", "-t", "audit", "--host", "10.0.0.1")
    guarded.ok("acl", "remove", "-t", "audit", "-u", "dave", "-o", "READ")
    assert ("Topic", "audit", "User:dave", "Read", "Allow") not in listed(guarded)
    assert ("Topic", "audit", "User:dave", "DescribeConfigs", "Allow") in listed(guarded)
    done = guarded.run("acl", "remove", "-t", "audit", "--yes")
    assert "removed 3 ACLs" in done.stderr
    assert listed(guarded, "-t", "audit") == []


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("add", "-u", "a", "-o", "reed", "-t", "x"), "did you mean Read"),
        (("add", "-u", "a", "-o", "read"), "name a resource"),
        (("add", "-o", "read", "-t", "x"), "name a principal"),
        (("add", "-u", "a", "-t", "x"), "name an operation"),
        (("add", "-u", "a", "--producer", "-o", "read", "-t", "x"), "choose the operations themselves"),
        (("add", "-u", "a", "--producer", "-g", "x"), "needs nothing on Group"),
        (("add", "-u", "a", "--deny", "-o", "read", "-t", "x", "--host", "shop.example"), "'shop.example' is no IP address"),
        (("add", "-u", "a", "-o", "read", "-t", "x", "--host", "10.0.0.0/8"), "no networks"),
        (
            ("add", "-u", "a", "-o", "create", "-g", "x"),
            "its operations are Read, Delete, Describe, DescribeConfigs, AlterConfigs, or All",
        ),
        (("remove", "-u", "a"), "name the resources"),
        (("list", "--check", "a", "read", "orders"), "is no resource"),
    ],
)
def test_what_makes_no_sense_is_told(guarded: Ottla, words: tuple[str, ...], said: str) -> None:
    assert said in guarded.fails("acl", *words, code=2)


def test_an_address_is_written_as_brokers_compare_it(guarded: Ottla) -> None:
    host = ("--host", "2001:db8::1")
    guarded.ok("acl", "add", "-u", "frank", "-o", "read", "-t", "far", *host)
    checked = guarded.ok("acl", "list", "--check", "frank", "read", "topic:far", *host)
    assert "from 2001:db8:0:0:0:0:0:1 on" in checked
    guarded.ok("acl", "remove", "-t", "far", "-u", "frank", *host)
    assert listed(guarded, "-t", "far") == []


def test_a_principal_that_is_no_user_is_told(guarded: Ottla) -> None:
    done = guarded.run("acl", "add", "-u", "Group:staff", "-o", "read", "-t", "far")
    assert "Group:staff is not a user" in done.stderr
    assert done.returncode == 0


def test_a_cluster_without_acls_says_so(ottla: Ottla) -> None:
    assert "the cluster has no ACLs" in ottla.fails("acl", "list")
