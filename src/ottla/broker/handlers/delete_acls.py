"""DeleteAcls: refused for each filter: there is no authorizer."""

from __future__ import annotations

from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handle(request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured on this broker")


def refuse(request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=error.code, error_message=error.detail) for _ in request.filters]
    )
