"""SaslHandshake where no login is expected: on a listener without SASL, or once the client is authenticated.

Logins, and re-authentication in a session with a lifetime, are `network.sasl_login`.
"""

from __future__ import annotations

from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode
from ottla.protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse


def handle(request: SaslHandshakeRequest, context: RequestContext) -> SaslHandshakeResponse:
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
