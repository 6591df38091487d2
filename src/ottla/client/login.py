"""A client's login (SASL), without I/O: which requests to send, and what the answers mean.

A mechanism turns a challenge into the next token. `dialogue` puts tokens into requests; the blocking and the asynchronous
connection both run it. A login lasts for the session lifetime that the broker gives: `renewal_s` says when to repeat it on the
same connection (KIP-368).
"""

from __future__ import annotations

import json
import os
from collections.abc import Generator
from typing import Any, Final, Protocol

from ottla.client.security import ClientSecurity
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla.protocol.registry import API_BY_NAME

_HANDSHAKE_VERSION: Final = 1
_RENEWAL_MIN, _RENEWAL_MAX = 0.85, 0.95
_SEPARATOR: Final = "\x01"

BLOCKING: Final = frozenset({"OAUTHBEARER", "GSSAPI"})
"""Mechanisms that ask somebody else for a token or a ticket."""

Ask = tuple[str, int, object]
"""API name, version, request."""


class LoginRefused(KafkaError):
    """The broker refused the login, or is not the one it claims to be. A retry would not help."""

    def __init__(self, message: str, code: ErrorCode = ErrorCode.SASL_AUTHENTICATION_FAILED) -> None:
        super().__init__(code, message)


class ClientMechanism(Protocol):
    def step(self, challenge: bytes) -> bytes | None:
        """The token that answers a challenge (the first is empty); None: the login is complete. LoginRefused."""
        ...


class Plain:
    def __init__(self, username: str, password: str) -> None:
        self._token: bytes | None = f"\0{username}\0{password}".encode()

    def step(self, challenge: bytes) -> bytes | None:
        token, self._token = self._token, None
        return token


class OAuthBearer:
    def __init__(self, token: str, extensions: tuple[tuple[str, str], ...] = ()) -> None:
        parts = [f"auth=Bearer {token}", *(f"{name}={value}" for name, value in extensions)]
        self._first: bytes | None = f"n,,{_SEPARATOR}{_SEPARATOR.join(parts)}{_SEPARATOR}{_SEPARATOR}".encode()
        self._refusal = ""

    def step(self, challenge: bytes) -> bytes | None:
        first, self._first = self._first, None
        if first is not None:
            return first
        if self._refusal:
            raise LoginRefused(f"the broker refuses the token: {self._refusal}")
        if not challenge:
            return None
        # A refused token is answered with the reason; the broker closes the connection after one more message (RFC 7628).
        try:
            document = json.loads(challenge)
            self._refusal = str(document.get("status", "invalid_token"))
        except (ValueError, AttributeError):
            self._refusal = "invalid_token"
        return _SEPARATOR.encode()

    @property
    def refusal(self) -> str:
        """Why the broker refuses the token."""
        return self._refusal


def new_mechanism(security: ClientSecurity, host: str) -> ClientMechanism:
    """For one login. Blocks for the mechanisms in `BLOCKING`. LoginRefused if there is no token or ticket."""
    if security.mechanism == "PLAIN":
        return Plain(security.username, security.password)
    if security.mechanism == "OAUTHBEARER":
        from ottla.client.oauth import obtain

        assert security.token is not None
        return OAuthBearer(obtain(security.token), security.token.extensions)
    if security.mechanism == "GSSAPI":
        from ottla.client.kerberos import Kerberos

        assert security.kerberos is not None
        return Kerberos(security.kerberos, host)
    from ottla.client.scram import Scram

    return Scram(security.mechanism, security.username, security.password, os.urandom(24), by_token=security.by_token)


def authenticate_version(versions: dict[int, tuple[int, int]]) -> int:
    """The highest version that both sides support, by the API versions of the broker."""
    api = API_BY_NAME["sasl_authenticate"]
    lowest, highest = versions.get(api.key, (0, -1))
    version = min(api.max_version, highest)
    if version < max(lowest, api.min_version):
        raise LoginRefused("it supports no SASL: check security.protocol", ErrorCode.UNSUPPORTED_VERSION)
    return version


def dialogue(name: str, mechanism: ClientMechanism, version: int) -> Generator[Ask, Any, int]:
    """Yields requests and takes their responses; returns the session lifetime in milliseconds, 0 for none."""
    answer = yield "sasl_handshake", _HANDSHAKE_VERSION, SaslHandshakeRequest(mechanism=name)
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        offered = ", ".join(answer.mechanisms) or "none"
        raise LoginRefused(f"it offers {offered}, not {name}", ErrorCode.UNSUPPORTED_SASL_MECHANISM)
    if answer.error_code:
        raise LoginRefused(f"it refuses SaslHandshake{_without_sasl(answer.error_code)}", _known(answer.error_code))
    token = mechanism.step(b"")
    lifetime_ms = 0
    while token is not None:
        answer = yield "sasl_authenticate", version, SaslAuthenticateRequest(auth_bytes=token)
        if answer.error_code:
            refusal = mechanism.refusal if isinstance(mechanism, OAuthBearer) else ""
            text = f"the broker refuses the token: {refusal}" if refusal else answer.error_message
            raise LoginRefused(text or "authentication failed", _known(answer.error_code))
        lifetime_ms = int(answer.session_lifetime_ms)
        token = mechanism.step(bytes(answer.auth_bytes))
    return lifetime_ms


def renewal_s(lifetime_ms: int, share: float) -> float:
    """After how many seconds to log in again, before the session ends. `share`: a random number in [0, 1)."""
    return lifetime_ms / 1000 * (_RENEWAL_MIN + (_RENEWAL_MAX - _RENEWAL_MIN) * share)


def _without_sasl(code: int) -> str:
    return ": this port has no SASL, check security.protocol" if code == ErrorCode.ILLEGAL_SASL_STATE else ""


def _known(number: int) -> ErrorCode:
    try:
        return ErrorCode(number)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
