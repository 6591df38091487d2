"""Super users, decisions that a session keeps, and when they end."""

from __future__ import annotations

import pytest

from ottla.security.acl import ALLOW, READ, TOPIC, WRITE, AclEntry, ResourcePattern
from ottla.security.authorizer import Authorizer, parse_super_users

ORDERS = ResourcePattern(TOPIC, "orders")
READS = frozenset({AclEntry("User:alice", "*", READ, ALLOW)})


def test_ac02_a_super_user_may_do_everything() -> None:
    authorizer = Authorizer(["User:admin"])
    admin = authorizer.permissions("User:admin", "10.0.0.1")
    assert authorizer.operations(admin, TOPIC, "orders") >> WRITE & 1
    assert authorizer.allows_on_any(admin, WRITE, TOPIC)
    assert not authorizer.operations(authorizer.permissions("User:Admin", "10.0.0.1"), TOPIC, "orders")
    assert authorizer.explain("User:admin", "10.0.0.1", WRITE, ORDERS).reason == "User:admin is a super user"


def test_a_session_keeps_its_decisions_until_the_acls_change() -> None:
    authorizer = Authorizer()
    alice = authorizer.permissions("User:alice", "10.0.0.1")
    authorizer.set(ORDERS, READS)
    authorizer.refresh(alice)
    assert authorizer.operations(alice, TOPIC, "orders") >> READ & 1
    assert alice.known[TOPIC] == {"orders": authorizer.operations(alice, TOPIC, "orders")}
    authorizer.set(ORDERS, frozenset())
    assert alice.generation != authorizer.generation
    authorizer.refresh(alice)
    assert authorizer.operations(alice, TOPIC, "orders") == 0


def test_sessions_of_a_principal_from_one_host_share_their_decisions() -> None:
    authorizer = Authorizer()
    authorizer.set(ORDERS, READS)
    alice = authorizer.permissions("User:alice", "10.0.0.1")
    authorizer.refresh(alice)
    authorizer.operations(alice, TOPIC, "orders")
    assert authorizer.permissions("User:alice", "10.0.0.1").known[TOPIC] == alice.known[TOPIC]
    assert authorizer.permissions("User:alice", "10.0.0.2") is not alice
    assert authorizer.permissions("User:alic", "10.0.0.1") is not alice
    for number in range(1000):  # as many principals as there are: no decisions of all of them are kept
        authorizer.permissions(f"User:{number}", "10.0.0.1")
    assert len(authorizer._shared) <= 64


def test_a_session_keeps_a_bounded_number_of_decisions() -> None:
    authorizer = Authorizer()
    alice = authorizer.permissions("User:alice", "10.0.0.1")
    authorizer.refresh(alice)
    for number in range(25_000):
        authorizer.operations(alice, TOPIC, f"t{number}")
    assert len(alice.known[TOPIC]) <= 10_000


def test_a_suspended_authorizer_makes_every_session_ask_anew() -> None:
    authorizer = Authorizer()
    alice = authorizer.permissions("User:alice", "10.0.0.1")
    authorizer.refresh(alice)
    authorizer.suspend()
    assert alice.generation != authorizer.generation
    authorizer.resume()
    assert alice.generation != authorizer.generation


def test_super_users_are_separated_by_semicolons() -> None:
    assert parse_super_users("User:CN=a,O=b; User:c;;") == {"User:CN=a,O=b", "User:c"}
    assert parse_super_users("") == frozenset()
    for bad in ("admin", "User:", ":x"):
        with pytest.raises(ValueError, match="no principal"):
            parse_super_users(bad)
