"""Who may use the APIs of delegation tokens."""

from __future__ import annotations

from ottla.broker.controller.acl_requests import AclRequests
from ottla.broker.network.context import CloseConnection, RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.security.principal import ANONYMOUS


def require_own_login(context: RequestContext) -> None:
    """A client that is not authenticated, or only with a token, may not use tokens: a token must not make another one."""
    session = context.session
    protocol = session.security_protocol
    if session.by_token or protocol == "PLAINTEXT" or (protocol == "SSL" and session.principal == ANONYMOUS):
        raise KafkaError(
            ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
            "delegation tokens need a login other than by a token, with SASL or a client certificate",
        )


def allows(acl_requests: AclRequests | None, context: RequestContext, operation: int, resource_type: int, name: str) -> bool:
    """By the ACLs; without an authorizer everything is allowed."""
    if acl_requests is None:
        return True
    authorizer = acl_requests.authorizer
    if authorizer.suspended:
        raise CloseConnection("the ACLs are being read again; connect again")
    permissions = authorizer.permissions(str(context.session.principal), context.session.client_host)
    authorizer.refresh(permissions)
    return bool(authorizer.operations(permissions, resource_type, name) >> operation & 1)
