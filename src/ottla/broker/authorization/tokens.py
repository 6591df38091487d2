"""Authorizes requests about delegation tokens: for and of other users they need ACLs (DT02, DT04).

A token of the client itself needs none: RenewDelegationToken and ExpireDelegationToken are decided by owner and renewer only.
"""

from __future__ import annotations

from typing import Any

from ottla.broker.authorization.guard import Guard
from ottla.broker.authorization.merging import Handle, filtered
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode
from ottla.protocol.messages.create_delegation_token import CreateDelegationTokenRequest, CreateDelegationTokenResponse
from ottla.protocol.messages.describe_delegation_token import DescribedDelegationToken, DescribeDelegationTokenResponse
from ottla.security.acl import CREATE_TOKENS, DELEGATION_TOKEN, DESCRIBE, DESCRIBE_TOKENS, USER
from ottla.security.principal import Principal, Session


def create_delegation_token(guard: Guard, handle: Handle, request: CreateDelegationTokenRequest, context: RequestContext) -> Any:
    """CREATE_TOKENS on the user for whom it is, if that is another one."""
    session = context.session
    owner = owner_of(request, session)
    if owner != session.principal and session.may_use_tokens and not guard.allows(context, CREATE_TOKENS, USER, str(owner)):
        return not_created(request, session, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
    return handle(request, context)


def describe_delegation_token(guard: Guard, handle: Handle, request: Any, context: RequestContext) -> Any:
    """DESCRIBE on the token or DESCRIBE_TOKENS on its owner, unless the client is its owner or a renewer."""
    client = context.session.principal

    def visible(token: DescribedDelegationToken) -> bool:
        owner = Principal(token.principal_type, token.principal_name)
        return (
            client == owner
            or any(client == Principal(each.principal_type, each.principal_name) for each in token.renewers)
            or guard.allows(context, DESCRIBE, DELEGATION_TOKEN, token.token_id)
            or guard.allows(context, DESCRIBE_TOKENS, USER, str(owner))
        )

    def keep(response: DescribeDelegationTokenResponse) -> None:
        response.tokens = [token for token in response.tokens if visible(token)]

    return filtered(handle, request, context, keep)


def owner_of(request: CreateDelegationTokenRequest, session: Session) -> Principal:
    if request.owner_principal_name:
        return Principal(request.owner_principal_type or "", request.owner_principal_name)
    return session.principal


def not_created(request: CreateDelegationTokenRequest, session: Session, code: ErrorCode) -> CreateDelegationTokenResponse:
    """The response of CreateDelegationToken without a token."""
    owner, requester = owner_of(request, session), session.principal
    return CreateDelegationTokenResponse(
        error_code=code,
        principal_type=owner.type,
        principal_name=owner.name,
        token_requester_principal_type=requester.type,
        token_requester_principal_name=requester.name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
