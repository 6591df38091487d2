"""The server side of PLAIN (RFC 4616): user and password in one message.

Passwords are compared by their digests in constant time, and an unknown user costs as much as a wrong password.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from typing import Final

from ottla.security.principal import USER, Principal
from ottla.security.sasl import SaslFailure, Success

_USER_OPTION: Final = "user_"


def plain_users(options: Mapping[str, str]) -> dict[str, bytes]:
    """Digests of the passwords in the options of a PlainLoginModule: `user_NAME="password"`."""
    return {
        name[len(_USER_OPTION) :]: _digest(password.encode())
        for name, password in options.items()
        if name.startswith(_USER_OPTION)
    }


class PlainServer:
    def __init__(self, users: Mapping[str, bytes]) -> None:
        """`users`: the digests of their passwords, see `plain_users`."""
        self._users = users

    def step(self, token: bytes, now_ms: int) -> Success:
        parts = token.split(b"\0")
        if len(parts) != 3:
            raise SaslFailure(
                f"PLAIN: the message has {len(parts)} parts instead of 3", "Invalid PLAIN message: not of three parts"
            )
        try:
            authorization_id, user, _ = (part.decode() for part in parts)
        except UnicodeDecodeError:
            raise SaslFailure("PLAIN: the message is not UTF-8", "Invalid PLAIN message: not UTF-8") from None
        if not user or not parts[2]:
            raise SaslFailure(
                "PLAIN: the user or the password is empty", "Authentication failed: the user or the password is empty"
            )
        expected = self._users.get(user)
        # An unknown user has a digest that no password has, so that it takes the same steps.
        right = hmac.compare_digest(_digest(parts[2]), expected if expected is not None else b"\0" * 32)
        if expected is None or not right:
            raise SaslFailure(f"PLAIN: user {user!r} is unknown or the password is wrong")
        if authorization_id not in ("", user):
            raise SaslFailure(
                f"PLAIN: user {user!r} asked for another authorization id",
                "Authentication failed: the authorization id is not the user",
            )
        return Success(Principal(USER, user))


def _digest(password: bytes) -> bytes:
    return hashlib.sha256(password).digest()
