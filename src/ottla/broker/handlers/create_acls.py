"""CreateAcls: refused for each entry: there is no authorizer."""

from __future__ import annotations

from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    raise KafkaError(ErrorCode.SECURITY_DISABLED, "no authorizer is configured on this broker")


def refuse(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    return CreateAclsResponse(
        results=[AclCreationResult(error_code=error.code, error_message=error.detail) for _ in request.creations]
    )
