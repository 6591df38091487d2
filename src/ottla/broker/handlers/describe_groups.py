"""DescribeGroups: state, protocol, members and assignments of classic groups.

An unknown group, or one of the new protocol, is described as Dead; from version 6 on it is GROUP_ID_NOT_FOUND.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.network.context import RequestContext
from ottla.errors import KafkaError
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse

GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: without an authorizer every client may do everything."""
_MESSAGE_FROM: Final = 6


def handle(groups: GroupCoordinators, request: DescribeGroupsRequest, context: RequestContext) -> DescribeGroupsResponse:
    described: list[DescribedGroup] = []
    for group_id in request.groups:
        try:
            _, shard = groups.shards.find(group_id)
        except KafkaError as error:
            described.append(_failed(group_id, error, context.version))
            continue
        group = shard.describe_groups([group_id], context.version)[0]
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = GROUP_OPERATIONS
        described.append(group)
    return DescribeGroupsResponse(groups=described)


def _failed(group_id: str, error: KafkaError, version: int) -> DescribedGroup:
    return DescribedGroup(
        group_id=group_id, error_code=error.code, error_message=error.detail if version >= _MESSAGE_FROM else None
    )


def refuse(request: DescribeGroupsRequest, error: KafkaError) -> DescribeGroupsResponse:
    return DescribeGroupsResponse(groups=[_failed(group_id, error, 0) for group_id in request.groups])
