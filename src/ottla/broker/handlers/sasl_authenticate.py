"""SaslAuthenticate where no login is expected: on a listener without SASL, or once the client is authenticated.

Logins are `network.sasl_login`.
"""

from __future__ import annotations

from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode
from ottla.protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse


def handle(request: SaslAuthenticateRequest, context: RequestContext) -> SaslAuthenticateResponse:
    return SaslAuthenticateResponse(
        error_code=ErrorCode.ILLEGAL_SASL_STATE, error_message="SaslAuthenticate outside of an authentication"
    )
