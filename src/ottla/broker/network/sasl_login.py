"""The frames of a connection on a SASL listener, until its client is authenticated and whenever it authenticates again.

Owns the order of the requests of a login. The mechanisms are in `security`. A connection whose session never expires leaves this
module with its login and costs nothing here afterwards.

| state | allowed | next |
|---|---|---|
| FIRST | a bare GSSAPI token (Kafka 0.9 clients), or as VERSIONS | AUTHENTICATE |
| VERSIONS | ApiVersions | HANDSHAKE; VERSIONS if its version is not supported or it is invalid |
| VERSIONS, HANDSHAKE | SaslHandshake | AUTHENTICATE |
| AUTHENTICATE | SaslAuthenticate after SaslHandshake v1, else a bare token | AUTHENTICATE, DONE |
| DONE, in a session with a lifetime | any request; SaslHandshake authenticates again (KIP-368) | DONE, AUTHENTICATE |

1. Nothing else is parsed before the login is complete. In AUTHENTICATE another request gets ILLEGAL_SASL_STATE in the form of its
   own response.
2. A frame before the login is complete is at most `sasl.server.max.receive.size`.
3. A failure is answered after `connection.failed.authentication.delay.ms`, and then the connection is closed. Meanwhile only a
   timer is held.
4. Tokens and passwords are not logged.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from ottla.errors import ErrorCode, KafkaError, MalformedInput
from ottla.ports import Clock, FileRange, Part
from ottla.protocol.headers import RequestHeader, decode_request_header, encode_response
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla.protocol.registry import API_BY_KEY, API_BY_NAME
from ottla.security.principal import Session
from ottla.security.sasl import Challenge, SaslFailure, ServerMechanism, Success
from ottla.wire.codec import decoder

if TYPE_CHECKING:
    from ottla.broker.network.connection import Connection
    from ottla.broker.network.dispatch import Dispatcher, PendingReply

GSSAPI: Final = "GSSAPI"
_HANDSHAKE: Final = API_BY_NAME["sasl_handshake"]
_AUTHENTICATE: Final = API_BY_NAME["sasl_authenticate"]
_API_VERSIONS: Final = API_BY_NAME["api_versions"].key
_HANDSHAKE_START: Final = _HANDSHAKE.key.to_bytes(2, "big")
_ERROR_AT: Final = 8
"""Position of the error code in a response of ApiVersions, after length and correlation id."""
_BETWEEN_LOGINS_S: Final = 1.0
"""A client may not begin to authenticate again more often."""


class State(Enum):
    FIRST = "first"
    VERSIONS = "versions"
    HANDSHAKE = "handshake"
    AUTHENTICATE = "authenticate"
    DONE = "done"


@dataclass(frozen=True, slots=True)
class OfferedMechanism:
    new: Callable[[], ServerMechanism]
    reauth_ms_max: int = 0
    """`connections.max.reauth.ms`; 0: no limit."""


class SaslListener:
    """What the logins of one listener have in common."""

    def __init__(
        self,
        offered: Mapping[str, OfferedMechanism],
        dispatcher: Dispatcher,
        clock: Clock,
        *,
        receive_bytes_max: int,
        failed_delay_ms: int,
    ) -> None:
        self.offered = offered
        self.dispatcher = dispatcher
        self.clock = clock
        self.receive_bytes_max = receive_bytes_max
        self.failed_delay_ms = failed_delay_ms

    def login(self, connection: Connection) -> Callable[[memoryview, Connection], list[Part] | PendingReply | None]:
        """For `ListenerUse.login`."""
        connection.limit_frames(self.receive_bytes_max)
        return SaslLogin(self).dispatch


class SaslLogin:
    """The login of one connection."""

    def __init__(self, listener: SaslListener) -> None:
        self._listener = listener
        self._state = State.FIRST
        self._bare_tokens = False
        """After SaslHandshake v0: tokens are not in requests."""
        self._mechanism_name = ""
        self._mechanism: ServerMechanism | None = None
        self._previous: tuple[str, Session] | None = None
        """While the client authenticates again: the mechanism and session that must not change."""
        self._expires_at = 0.0
        """Of the session, by the monotonic clock."""
        self._began_again_at: float | None = None

    def dispatch(self, frame: memoryview, connection: Connection) -> list[Part] | PendingReply | None:
        match self._state:
            case State.DONE:
                return self._in_session(frame, connection)
            case State.AUTHENTICATE:
                return self._token(frame, connection)
            case _:
                return self._before_handshake(frame, connection)

    # Handshake

    def _before_handshake(self, frame: memoryview, connection: Connection) -> list[Part] | PendingReply | None:
        if self._state is State.FIRST and GSSAPI in self._listener.offered and _is_no_request(frame):
            self._bare_tokens = True
            self._begin(GSSAPI)
            connection.limit_frames(self._listener.receive_bytes_max, smallest=0)
            return self._token(frame, connection)
        header, position = decode_request_header(frame)
        if header.api_key == _HANDSHAKE.key:
            return self._handshake(header, frame[position:], connection)
        if header.api_key != _API_VERSIONS:
            self._refuse(connection, None, f"{_name(header.api_key)} before SaslHandshake")
            return None
        if self._state is State.HANDSHAKE:
            raise MalformedInput("ApiVersions a second time instead of SaslHandshake")
        reply = self._listener.dispatcher.dispatch(frame, connection)
        sent = b"".join([part for part in reply if not isinstance(part, FileRange)]) if isinstance(reply, list) else b""
        self._state = State.HANDSHAKE if sent[_ERROR_AT : _ERROR_AT + 2] == b"\0\0" else State.VERSIONS
        return reply

    def _handshake(self, header: RequestHeader, body: memoryview, connection: Connection) -> list[Part] | None:
        version = header.api_version
        if not 0 <= version <= _HANDSHAKE.max_version:
            raise MalformedInput(f"SaslHandshake v{version} is not served, versions 0 to {_HANDSHAKE.max_version} are")
        asked = decoder(SaslHandshakeRequest, version)(body, 0)[0].mechanism
        listener = self._listener
        names = list(listener.offered)
        if asked not in listener.offered:
            reply = SaslHandshakeResponse(error_code=ErrorCode.UNSUPPORTED_SASL_MECHANISM, mechanisms=names)
            self._refuse(
                connection,
                encode_response(_HANDSHAKE, version, header.correlation_id, reply),
                f"mechanism {asked[:40]!r} is not enabled on this listener; enabled: {', '.join(names)}",
            )
            return None
        self._bare_tokens = version == 0
        # An empty token is a frame of length 0.
        connection.limit_frames(listener.receive_bytes_max, smallest=0 if self._bare_tokens else 1)
        self._begin(asked)
        return encode_response(_HANDSHAKE, version, header.correlation_id, SaslHandshakeResponse(mechanisms=names))

    def _begin(self, mechanism: str) -> None:
        self._state = State.AUTHENTICATE
        self._mechanism_name = mechanism
        self._mechanism = self._listener.offered[mechanism].new()

    # Tokens

    def _token(self, frame: memoryview, connection: Connection) -> list[Part] | None:
        if self._previous is not None and self._previous[0] != self._mechanism_name:
            self._refuse(connection, None, f"{self._mechanism_name} after a login with {self._previous[0]}")
            return None
        if self._bare_tokens:
            return self._bare_token(frame, connection)
        header, position = decode_request_header(frame)
        if header.api_key != _AUTHENTICATE.key:
            error = KafkaError(ErrorCode.ILLEGAL_SASL_STATE, "not allowed before authentication is complete")
            reply = self._listener.dispatcher.refused(frame, connection, error)
            self._refuse(connection, reply, f"{_name(header.api_key)} instead of SaslAuthenticate")
            return None
        version = header.api_version
        if not 0 <= version <= _AUTHENTICATE.max_version:
            raise MalformedInput(f"SaslAuthenticate v{version} is not served, versions 0 to {_AUTHENTICATE.max_version} are")
        request = decoder(SaslAuthenticateRequest, version)(frame, position)[0]
        lifetime_ms = 0
        try:
            outcome = self._step(bytes(request.auth_bytes))
            if isinstance(outcome, Success):
                lifetime_ms = self._complete(outcome, connection)
        except SaslFailure as failure:
            response = SaslAuthenticateResponse(
                error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=failure.told or self._wrong_credentials()
            )
            reply = encode_response(_AUTHENTICATE, version, header.correlation_id, response)
            self._refuse(connection, reply, failure.reason)
            return None
        response = SaslAuthenticateResponse(auth_bytes=outcome.token or b"", session_lifetime_ms=lifetime_ms)
        return encode_response(_AUTHENTICATE, version, header.correlation_id, response)

    def _bare_token(self, frame: memoryview, connection: Connection) -> list[Part] | None:
        try:
            outcome = self._step(bytes(frame))
            if isinstance(outcome, Success):
                self._complete(outcome, connection)
        except SaslFailure as failure:
            self._refuse(connection, None, failure.reason)
            return None
        token = outcome.token
        return None if token is None else [len(token).to_bytes(4, "big") + token]

    def _step(self, token: bytes) -> Challenge | Success:
        assert self._mechanism is not None
        return self._mechanism.step(token, self._listener.clock.now_ms())

    def _complete(self, success: Success, connection: Connection) -> int:
        """Begin the session. Returns its lifetime, 0 if it has no end."""
        listener = self._listener
        before = self._previous[1].principal if self._previous is not None else success.principal
        if success.principal != before:
            raise SaslFailure(
                f"{before} authenticated again as {success.principal}", "The principal of a connection cannot change"
            )
        limits = []
        now_ms = listener.clock.now_ms()
        reauth_ms_max = listener.offered[self._mechanism_name].reauth_ms_max
        if reauth_ms_max > 0:
            limits.append(reauth_ms_max)
        if success.expires_at_ms is not None:
            limits.append(max(0, success.expires_at_ms - now_ms))
        lifetime_ms = min(limits, default=0)
        self._mechanism = None
        connection.limit_frames(None)
        connection.authenticated(
            replace(
                connection.session,
                principal=success.principal,
                by_token=success.by_token,
                expires_at_ms=now_ms + lifetime_ms if limits else None,
                permissions=None,
            )
        )
        if limits:
            self._state = State.DONE
            self._previous = None
            self._expires_at = listener.clock.monotonic() + lifetime_ms / 1000
        else:
            connection.dispatch = listener.dispatcher.dispatch
        return lifetime_ms

    # A session with a lifetime

    def _in_session(self, frame: memoryview, connection: Connection) -> list[Part] | PendingReply | None:
        now = self._listener.clock.monotonic()
        if frame[:2] == _HANDSHAKE_START and (self._began_again_at is None or now - self._began_again_at >= _BETWEEN_LOGINS_S):
            self._began_again_at = now
            self._previous = (self._mechanism_name, connection.session)
            header, position = decode_request_header(frame)
            return self._handshake(header, frame[position:], connection)
        if now > self._expires_at:
            connection.listener.expired += 1
            raise MalformedInput(f"the session of {connection.session.principal} has expired (connections.max.reauth.ms)")
        return self._listener.dispatcher.dispatch(frame, connection)

    # Failures

    def _refuse(self, connection: Connection, reply: list[Part] | None, reason: str) -> None:
        self._mechanism = None
        connection.refuse(reply, reason, self._listener.failed_delay_ms / 1000)

    def _wrong_credentials(self) -> str:
        return f"Authentication failed: invalid credentials for SASL mechanism {self._mechanism_name}"


def _name(api_key: int) -> str:
    api = API_BY_KEY.get(api_key)
    return api.name if api is not None else f"API key {api_key}"


def _is_no_request(frame: memoryview) -> bool:
    """Clients of Kafka 0.9 begin with a GSSAPI token, which has no API key that exists."""
    return int.from_bytes(frame[:2], "big") not in API_BY_KEY
