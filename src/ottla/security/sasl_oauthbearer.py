"""The server side of OAUTHBEARER (RFC 7628, KIP-255): a bearer token in one message.

A token that is not accepted is answered with a JSON document, as the RFC says. The client acknowledges it with a single 01, and
only then the login fails. Extensions are parsed and dropped: nothing validates them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from ottla.security.jwt import BadToken, ValidToken
from ottla.security.principal import USER, Principal
from ottla.security.sasl import Challenge, SaslFailure, Success

_SASL_NAME: Final = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_MESSAGE: Final = re.compile(rf"n,(?:a=({_SASL_NAME}))?,\x01((?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*)\x01")
_AUTH: Final = re.compile(r"([A-Za-z0-9_]+) +([-_~+/.A-Za-z0-9]+=*)")
_ACKNOWLEDGED: Final = b"\x01"
_INVALID_TOKEN: Final = '{"status":"invalid_token"}'


@dataclass(frozen=True, slots=True)
class ClientMessage:
    authorization_id: str
    token: str
    extensions: dict[str, str]

    def __repr__(self) -> str:
        return f"ClientMessage({self.authorization_id!r})"


def parse_client_message(message: bytes) -> ClientMessage:
    match = _MESSAGE.fullmatch(message.decode("latin-1"))
    if match is None:
        raise SaslFailure("OAUTHBEARER: the client's message is malformed")
    authorization_id, pairs = match.groups()
    names = [pair.partition("=")[::2] for pair in pairs.split("\x01")[:-1]]
    values = dict(names)
    if len(values) < len(names):
        raise SaslFailure("OAUTHBEARER: a key appears twice in the client's message")
    auth = _AUTH.fullmatch(values.pop("auth", ""))
    if auth is None or auth[1].lower() != "bearer":
        raise SaslFailure("OAUTHBEARER: the client's message has no bearer token")
    return ClientMessage((authorization_id or "").replace("=2C", ",").replace("=3D", "="), auth[2], values)


class OAuthBearerServer:
    def __init__(self, validate: Callable[[str, int], ValidToken]) -> None:
        """`validate(token, now_ms)` raises BadToken."""
        self._validate = validate
        self._reason: str | None = None
        """Why the token was refused."""

    def step(self, token: bytes, now_ms: int) -> Challenge | Success:
        if self._reason is not None:
            acknowledged = token == _ACKNOWLEDGED
            raise SaslFailure(self._reason, _INVALID_TOKEN if acknowledged else None)
        message = parse_client_message(token)
        try:
            valid = self._validate(message.token, now_ms)
        except BadToken as error:
            self._reason = f"OAUTHBEARER: {error}"
            return Challenge(_INVALID_TOKEN.encode())
        if message.authorization_id not in ("", valid.principal_name):
            raise SaslFailure(
                f"OAUTHBEARER: {valid.principal_name!r} asked for another authorization id",
                "Authentication failed: the authorization id is not the principal of the token",
            )
        return Success(Principal(USER, valid.principal_name), expires_at_ms=valid.expires_at_ms)
