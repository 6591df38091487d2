"""DescribeAcls: the ACLs that match a filter (AC07); SECURITY_DISABLED without an authorizer."""

from __future__ import annotations

from ottla.broker.controller.acl_requests import AclRequests
from ottla.broker.handlers.create_acls import NO_AUTHORIZER
from ottla.broker.network.context import CloseConnection, RequestContext
from ottla.errors import ErrorCode
from ottla.protocol.messages.delete_acls import DeleteAclsFilter
from ottla.protocol.messages.describe_acls import (
    AclDescription,
    DescribeAclsRequest,
    DescribeAclsResource,
    DescribeAclsResponse,
)
from ottla.security.acl import LITERAL, UNKNOWN, AclFilter

_HIGHEST = {"resource_type_filter": 7, "pattern_type_filter": 4, "operation": 15, "permission_type": 3}


def handle(acl_requests: AclRequests | None, request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    wanted = filter_of(request)
    if acl_requests is None:
        return DescribeAclsResponse(error_code=ErrorCode.SECURITY_DISABLED, error_message=NO_AUTHORIZER)
    resources = [
        DescribeAclsResource(
            resource_type=resource.type,
            resource_name=resource.name,
            pattern_type=resource.pattern,
            acls=[
                AclDescription(
                    principal=entry.principal,
                    host=entry.host,
                    operation=entry.operation,
                    permission_type=entry.permission,
                )
                for entry in entries
            ],
        )
        for resource, entries in acl_requests.describe(wanted).items()
        # Version 0 cannot name a pattern type.
        if context.version > 0 or resource.pattern == LITERAL
    ]
    return DescribeAclsResponse(resources=resources)


def filter_of(asked: DescribeAclsRequest | DeleteAclsFilter) -> AclFilter:
    """CloseConnection if it has unknown elements."""
    for name, highest in _HIGHEST.items():
        if not UNKNOWN < getattr(asked, name) <= highest:
            raise CloseConnection(f"a filter of ACLs has the unknown {name} {getattr(asked, name)}")
    return AclFilter(
        asked.resource_type_filter,
        asked.resource_name_filter,
        asked.pattern_type_filter,
        asked.principal_filter,
        asked.host_filter,
        asked.operation,
        asked.permission_type,
    )
