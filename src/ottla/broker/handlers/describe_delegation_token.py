"""DescribeDelegationToken: the tokens that the client may see; others are left out (DT04)."""

from __future__ import annotations

from ottla.broker.controller.acl_requests import AclRequests
from ottla.broker.handlers.token_access import allows, require_own_login
from ottla.broker.metadata.delegation_tokens import DelegationTokens
from ottla.broker.network.context import RequestContext
from ottla.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.security import acl
from ottla.security.delegation_token import DelegationToken
from ottla.security.principal import Principal


def handle(
    tokens: DelegationTokens, acl_requests: AclRequests | None, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    require_own_login(context)

    def may_describe(token: DelegationToken) -> bool:
        return allows(acl_requests, context, acl.DESCRIBE, acl.DELEGATION_TOKEN, token.id) or allows(
            acl_requests, context, acl.DESCRIBE_TOKENS, acl.USER, str(token.owner)
        )

    owners = None
    if request.owners is not None:
        owners = [Principal(each.principal_type, each.principal_name) for each in request.owners]
    found = tokens.describe(context.session.principal, owners, may_describe)
    return DescribeDelegationTokenResponse(tokens=[_described(token, hmac) for token, hmac in found])


def _described(token: DelegationToken, hmac: bytes) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.type,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.type,
        token_requester_principal_name=token.requester.name,
        issue_timestamp=token.issued_at_ms,
        expiry_timestamp=token.expires_at_ms,
        max_timestamp=token.max_at_ms,
        token_id=token.id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=renewer.type, principal_name=renewer.name)
            for renewer in token.renewers
        ],
    )
