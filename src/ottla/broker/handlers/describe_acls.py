"""DescribeAcls: there is no authorizer, and that is the answer, as Apache Kafka gives it; entries in the tree are only kept."""

from __future__ import annotations

from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse

VERSIONS = (0, 3)


def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="there is no authorizer on this broker, so there are no ACLs"
    )
