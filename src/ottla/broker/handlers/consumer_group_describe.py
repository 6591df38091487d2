"""ConsumerGroupDescribe: state, members, current and target assignments of consumer groups of the new protocol (KIP-848)."""

from __future__ import annotations

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.handlers.describe_groups import GROUP_OPERATIONS
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)


def handle(
    groups: GroupCoordinators, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> ConsumerGroupDescribeResponse:
    described: list[DescribedGroup] = []
    for group_id in request.group_ids:
        try:
            groups.config.require_consumer_protocol()
            if not group_id:
                raise KafkaError(ErrorCode.INVALID_GROUP_ID)
            _, shard = groups.shards.find(group_id)
        except KafkaError as error:
            described.append(_failed(group_id, error))
            continue
        group = shard.consumer_group_describe([group_id])[0]
        if request.include_authorized_operations and not group.error_code:
            group.authorized_operations = GROUP_OPERATIONS
        described.append(group)
    return ConsumerGroupDescribeResponse(groups=described)


def _failed(group_id: str, error: KafkaError) -> DescribedGroup:
    return DescribedGroup(group_id=group_id, error_code=error.code, error_message=error.detail)


def refuse(request: ConsumerGroupDescribeRequest, error: KafkaError) -> ConsumerGroupDescribeResponse:
    return ConsumerGroupDescribeResponse(groups=[_failed(group_id, error) for group_id in request.group_ids])
