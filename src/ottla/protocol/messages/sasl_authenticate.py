"""SaslAuthenticate: one message of a SASL mechanism, and the server's answer to it.

Versions
    1       how long the session is good for (KIP-368)
    2       flexible
"""

from __future__ import annotations

from ottla.types import Buffer
from ottla.wire.schema import message, wire


@message(versions="0-2", flexible="2+")
class SaslAuthenticateRequest:
    auth_bytes: Buffer = wire("bytes")


@message(versions="0-2", flexible="2+")
class SaslAuthenticateResponse:
    error_code: int = wire("int16")
    error_message: str | None = wire("string", nullable="0+", default=None)
    auth_bytes: Buffer = wire("bytes")
    session_lifetime_ms: int = wire("int64", "1+", ignorable=True)
