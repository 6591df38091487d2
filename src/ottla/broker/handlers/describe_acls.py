"""DescribeAcls: SECURITY_DISABLED, as Apache Kafka without an authorizer. ACLs in the metadata store are kept."""

from __future__ import annotations

from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode
from ottla.protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle(request: DescribeAclsRequest, context: RequestContext) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="no authorizer is configured on this broker, so there are no ACLs"
    )
