"""DescribeDelegationToken: the tokens of the owners asked for. `authorization.tokens` leaves out what ACLs hide (DT04)."""

from __future__ import annotations

from ottla.broker.metadata.delegation_tokens import DelegationTokens, require_own_login
from ottla.broker.network.context import RequestContext
from ottla.protocol.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)
from ottla.security.delegation_token import DelegationToken
from ottla.security.principal import Principal


def handle(
    tokens: DelegationTokens, request: DescribeDelegationTokenRequest, context: RequestContext
) -> DescribeDelegationTokenResponse:
    require_own_login(context.session)
    owners = None
    if request.owners is not None:
        owners = [Principal(each.principal_type, each.principal_name) for each in request.owners]
    return DescribeDelegationTokenResponse(tokens=[_described(token, hmac) for token, hmac in tokens.describe(owners)])


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
