"""ExpireDelegationToken: set the expiry of a token, or remove it (DT03)."""

from __future__ import annotations

from ottla.broker.handlers.change_log import log_change
from ottla.broker.metadata.delegation_tokens import DelegationTokens, require_own_login
from ottla.broker.network.context import RequestContext
from ottla.errors import KafkaError
from ottla.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest, ExpireDelegationTokenResponse


async def handle(
    tokens: DelegationTokens, request: ExpireDelegationTokenRequest, context: RequestContext
) -> ExpireDelegationTokenResponse:
    try:
        require_own_login(context.session)
        token, expires_at_ms = await tokens.expire(bytes(request.hmac), context.session.principal, request.expiry_time_period_ms)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    log_change(context, f"set delegation token {token.id} of {token.owner} to expire")
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires_at_ms)
