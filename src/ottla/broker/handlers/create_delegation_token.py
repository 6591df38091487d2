"""CreateDelegationToken: a credential for the client itself, or (KIP-373) for another user if ACLs allow it (DT02, DT03)."""

from __future__ import annotations

from ottla.broker.controller.acl_requests import AclRequests
from ottla.broker.handlers.token_access import allows, require_own_login
from ottla.broker.metadata.delegation_tokens import DelegationTokens
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.security import acl
from ottla.security.principal import USER, Principal


async def handle(
    tokens: DelegationTokens, acl_requests: AclRequests | None, request: CreateDelegationTokenRequest, context: RequestContext
) -> CreateDelegationTokenResponse:
    requester = context.session.principal
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or "", request.owner_principal_name)
    response = CreateDelegationTokenResponse(
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    try:
        require_own_login(context)
        if owner != requester and not allows(acl_requests, context, acl.CREATE_TOKENS, acl.USER, str(owner)):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
        if any(renewer.type != USER for renewer in renewers):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        token, hmac = await tokens.create(owner, requester, renewers, request.max_lifetime_ms)
    except KafkaError as error:
        response.error_code = error.code
        return response
    response.issue_timestamp_ms, response.max_timestamp_ms = token.issued_at_ms, token.max_at_ms
    response.expiry_timestamp_ms, response.token_id, response.hmac = token.expires_at_ms, token.id, hmac
    return response
