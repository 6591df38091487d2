"""SaslHandshake: a client names the mechanism it will authenticate with.

Versions
    0       the mechanism's own messages follow on the connection, bare
    1       they follow inside SaslAuthenticate
"""

from __future__ import annotations

from ottla.wire.schema import message, wire


@message(versions="0-1")
class SaslHandshakeRequest:
    mechanism: str = wire("string")


@message(versions="0-1")
class SaslHandshakeResponse:
    error_code: int = wire("int16")
    mechanisms: list[str] = wire("[]string")
