"""RenewDelegationToken: move the expiry of a token, at most to its maximum (DT03)."""

from __future__ import annotations

from ottla.broker.handlers.change_log import log_change
from ottla.broker.metadata.delegation_tokens import DelegationTokens, require_own_login
from ottla.broker.network.context import RequestContext
from ottla.errors import KafkaError
from ottla.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest, RenewDelegationTokenResponse


async def handle(
    tokens: DelegationTokens, request: RenewDelegationTokenRequest, context: RequestContext
) -> RenewDelegationTokenResponse:
    try:
        require_own_login(context.session)
        token = await tokens.renew(bytes(request.hmac), context.session.principal, request.renew_period_ms)
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    log_change(context, f"renewed delegation token {token.id} of {token.owner}")
    return RenewDelegationTokenResponse(expiry_timestamp_ms=token.expires_at_ms)
