"""CreateAcls: each ACL succeeds or fails on its own, and holds on every broker when it is answered (AC06, AC09).

To create an ACL that exists succeeds. Unknown elements close the connection, as in Apache Kafka, whose broker cannot parse them.
"""

from __future__ import annotations

from ottla.broker.controller.acl_requests import AclRequests, words
from ottla.broker.handlers.change_log import log_change
from ottla.broker.network.context import CloseConnection, RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_acls import AclCreation, AclCreationResult, CreateAclsRequest, CreateAclsResponse
from ottla.security.acl import UNKNOWN, AclEntry, ResourcePattern

NO_AUTHORIZER = "no authorizer is configured on this broker: set authorizer.class.name"
_HIGHEST = {"resource_type": 7, "resource_pattern_type": 4, "operation": 15, "permission_type": 3}


async def handle(acl_requests: AclRequests | None, request: CreateAclsRequest, context: RequestContext) -> CreateAclsResponse:
    for creation in request.creations:
        for name, highest in _HIGHEST.items():
            if not UNKNOWN < getattr(creation, name) <= highest:
                raise CloseConnection(f"an ACL to create has the unknown {name} {getattr(creation, name)}")
    if acl_requests is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    bindings = [_binding(creation) for creation in request.creations]
    outcomes = await acl_requests.create(bindings)
    created = [binding for binding, outcome in zip(bindings, outcomes, strict=True) if outcome is None]
    if created:
        log_change(context, f"created ACLs: {words(created)}")
    return CreateAclsResponse(results=[_result(outcome) for outcome in outcomes])


def _binding(creation: AclCreation) -> tuple[ResourcePattern, AclEntry]:
    resource = ResourcePattern(creation.resource_type, creation.resource_name, creation.resource_pattern_type)
    return resource, AclEntry(creation.principal, creation.host, creation.operation, creation.permission_type)


def _result(outcome: KafkaError | None) -> AclCreationResult:
    return AclCreationResult() if outcome is None else AclCreationResult(error_code=outcome.code, error_message=outcome.detail)


def refuse(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    return CreateAclsResponse(results=[_result(error) for _ in request.creations])
