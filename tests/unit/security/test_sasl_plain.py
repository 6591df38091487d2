"""PLAIN, server side (SA07)."""

from __future__ import annotations

import pytest

from ottla.security.principal import Principal
from ottla.security.sasl import SaslFailure
from ottla.security.sasl_plain import PlainServer, plain_users

USERS = plain_users({"username": "broker", "password": "x", "user_ada": "secret", "user_bob": "wörd"})


def test_sa07_users_are_the_options_with_the_prefix() -> None:
    assert sorted(USERS) == ["ada", "bob"]
    assert "secret" not in repr(USERS)


@pytest.mark.parametrize("message", [b"\0ada\0secret", b"ada\0ada\0secret", "\0bob\0wörd".encode()])
def test_sa07_a_user_with_its_password_succeeds(message: bytes) -> None:
    success = PlainServer(USERS).step(message, 0)
    assert success.principal == Principal("User", message.split(b"\0")[1].decode())
    assert success.token == b""
    assert success.expires_at_ms is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"ada\0secret",
        b"\0ada\0secret\0",
        b"\0ada\0secret\0more",
        b"\0\0secret",
        b"\0ada\0",
        b"bob\0ada\0secret",
        b"\0ada\0secret2",
        b"\0Ada\0secret",
        b"\0ada\0\xff",
        b"\xff\0ada\0secret",
        b"\0" * 100_000,
    ],
)
def test_sa07_anything_else_fails(message: bytes) -> None:
    with pytest.raises(SaslFailure) as failure:
        PlainServer(USERS).step(message, 0)
    assert "secret" not in f"{failure.value} {failure.value.told}"


def test_sa04_an_unknown_user_and_a_wrong_password_are_told_the_same() -> None:
    told = []
    for message in (b"\0ada\0wrong", b"\0nobody\0secret"):
        with pytest.raises(SaslFailure) as failure:
            PlainServer(USERS).step(message, 0)
        told.append(failure.value.told)
    assert told == [None, None]
