"""DeleteAcls: delete what filters match, and tell which ACLs they were. No broker applies them any more (AC07, AC09).

Unknown elements of a filter close the connection, as in Apache Kafka, whose broker cannot parse them.
"""

from __future__ import annotations

from ottla.broker.controller.acl_requests import AclRequests, Deleted, words
from ottla.broker.handlers.change_log import log_change
from ottla.broker.handlers.create_acls import NO_AUTHORIZER
from ottla.broker.handlers.describe_acls import filter_of
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_acls import (
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
    DeleteAclsResponse,
)


async def handle(acl_requests: AclRequests | None, request: DeleteAclsRequest, context: RequestContext) -> DeleteAclsResponse:
    filters = [filter_of(each) for each in request.filters]
    if acl_requests is None:
        raise KafkaError(ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER)
    outcomes = await acl_requests.delete(filters)
    deleted = [binding for outcome in outcomes for binding in outcome.acls if binding[0] not in outcome.failures]
    if deleted:
        log_change(context, f"deleted ACLs: {words(deleted)}")
    return DeleteAclsResponse(filter_results=[_result(outcome) for outcome in outcomes])


def _result(outcome: Deleted) -> DeleteAclsFilterResult:
    matching = []
    for resource, entry in outcome.acls:
        failure = outcome.failures.get(resource)
        matching.append(
            DeleteAclsMatchingAcl(
                error_code=failure.code if failure is not None else ErrorCode.NONE,
                error_message=failure.detail if failure is not None else None,
                resource_type=resource.type,
                resource_name=resource.name,
                pattern_type=resource.pattern,
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    failure = outcome.failure
    if failure is not None:
        return DeleteAclsFilterResult(error_code=failure.code, error_message=failure.detail, matching_acls=matching)
    return DeleteAclsFilterResult(matching_acls=matching)


def refuse(request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    return DeleteAclsResponse(
        filter_results=[DeleteAclsFilterResult(error_code=error.code, error_message=error.detail) for _ in request.filters]
    )
