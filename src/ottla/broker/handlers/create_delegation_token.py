"""CreateDelegationToken: a credential for the client itself, or (KIP-373) for another user if ACLs allow it (DT02, DT03)."""

from __future__ import annotations

from ottla.broker.authorization.tokens import not_created, owner_of
from ottla.broker.handlers.change_log import log_change
from ottla.broker.metadata.delegation_tokens import DelegationTokens, require_own_login
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.security.principal import USER, Principal


async def handle(
    tokens: DelegationTokens, request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    session = context.session
    try:
        require_own_login(session)
        renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
        if any(renewer.type != USER for renewer in renewers):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        token, hmac = await tokens.create(owner_of(request, session), session.principal, renewers, request.max_lifetime_ms)
    except KafkaError as error:
        return not_created(request, session, error.code)
    log_change(context, f"created delegation token {token.id} for {token.owner}")
    response = not_created(request, session, ErrorCode.NONE)
    response.issue_timestamp_ms, response.max_timestamp_ms = token.issued_at_ms, token.max_at_ms
    response.expiry_timestamp_ms, response.token_id, response.hmac = token.expires_at_ms, token.id, hmac
    return response
