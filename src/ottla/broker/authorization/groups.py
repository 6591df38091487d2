"""Authorizes requests about groups and their offsets that are more than one operation on one list."""

from __future__ import annotations

from typing import Any, Final

from ottla.broker.authorization.guard import Guard
from ottla.broker.authorization.merging import Handle, Refuse, answer, filtered, split
from ottla.broker.authorization.rows import denied_error
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from ottla.protocol.messages.consumer_group_describe import DescribedGroup as DescribedConsumerGroup
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from ottla.protocol.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from ottla.protocol.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from ottla.protocol.messages.list_groups import ListGroupsResponse
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.security.acl import CLUSTER, CLUSTER_ACTION, DELETE, DESCRIBE, GROUP, READ, TOPIC, TRANSACTIONAL_ID
from ottla.types import NO_OFFSET

_TOPIC_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_GROUP_DENIED: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_GROUPS_FROM: Final = 8
_FETCH_IDS_FROM: Final = 10
_GROUP_ERROR_FROM: Final = 2
_KEYS_FROM: Final = 4
_KEY_GROUP, _KEY_TRANSACTION, _KEY_SHARE = 0, 1, 2


def find_coordinator(
    guard: Guard, handle: Handle, refuse: Refuse, request: FindCoordinatorRequest, context: RequestContext
) -> Any:
    """DESCRIBE on the group or the transactional id; CLUSTER_ACTION for a share partition."""
    if request.key_type == _KEY_SHARE:
        if not guard.allows_on_cluster(context, CLUSTER_ACTION):
            raise denied_error(CLUSTER)
        return handle(request, context)
    if request.key_type not in (_KEY_GROUP, _KEY_TRANSACTION):
        return handle(request, context)  # invalid, and told so
    kind = GROUP if request.key_type == _KEY_GROUP else TRANSACTIONAL_ID
    if context.version < _KEYS_FROM:
        if not guard.allows(context, DESCRIBE, kind, request.key):
            raise denied_error(kind)
        return handle(request, context)
    allowed, denied = split(guard, context, DESCRIBE, request.coordinator_keys, str, kind)
    if not denied:
        return handle(request, context)
    request.coordinator_keys = denied
    refused: FindCoordinatorResponse = refuse(request, denied_error(kind))
    request.coordinator_keys = allowed
    if not allowed:
        return refused

    def merge(response: FindCoordinatorResponse) -> FindCoordinatorResponse:
        response.coordinators += refused.coordinators
        return response

    return answer(handle, refuse, request, context, merge)


def list_groups(guard: Guard, handle: Handle, request: Any, context: RequestContext) -> Any:
    """DESCRIBE on the cluster, or on each group that is listed."""
    if guard.allows_on_cluster(context, DESCRIBE, quietly=True):
        return handle(request, context)

    def keep(response: ListGroupsResponse) -> None:
        response.groups, _ = split(guard, context, DESCRIBE, response.groups, lambda group: group.group_id, GROUP, quietly=True)

    return filtered(handle, request, context, keep)


def describe_groups(guard: Guard, handle: Handle, refuse: Refuse, request: DescribeGroupsRequest, context: RequestContext) -> Any:
    allowed, denied = split(guard, context, DESCRIBE, request.groups, str, GROUP)
    refused = [DescribedGroup(group_id=group_id, error_code=_GROUP_DENIED) for group_id in denied]
    if not allowed:
        return DescribeGroupsResponse(groups=refused)
    request.groups = allowed

    def merge(response: DescribeGroupsResponse) -> DescribeGroupsResponse:
        if request.include_authorized_operations:
            for group in response.groups:
                if not group.error_code:
                    group.authorized_operations = guard.authorized_operations(context, GROUP, group.group_id)
        response.groups += refused
        return response

    return answer(handle, refuse, request, context, merge)


def consumer_group_describe(
    guard: Guard, handle: Handle, refuse: Refuse, request: ConsumerGroupDescribeRequest, context: RequestContext
) -> Any:
    """DESCRIBE on the group (CV03), and on every topic that is assigned in it: a group is told whole or not at all."""
    allowed, denied = split(guard, context, DESCRIBE, request.group_ids, str, GROUP)
    refused = [DescribedConsumerGroup(group_id=group_id, error_code=_GROUP_DENIED) for group_id in denied]
    if not allowed:
        return ConsumerGroupDescribeResponse(groups=refused)
    request.group_ids = allowed

    def merge(response: ConsumerGroupDescribeResponse) -> ConsumerGroupDescribeResponse:
        groups = []
        for group in response.groups:
            assigned = [
                topic.topic_name
                for member in group.members
                for assignment in (member.assignment, member.target_assignment)
                for topic in assignment.topic_partitions
            ]
            _, hidden = split(guard, context, DESCRIBE, assigned, str)
            if hidden:
                text = "The group has described topic(s) that the client is not authorized to describe."
                group = DescribedConsumerGroup(group_id=group.group_id, error_code=_TOPIC_DENIED, error_message=text)
            elif request.include_authorized_operations and not group.error_code:
                group.authorized_operations = guard.authorized_operations(context, GROUP, group.group_id)
            groups.append(group)
        response.groups = [*groups, *refused]
        return response

    return answer(handle, refuse, request, context, merge)


def consumer_group_heartbeat(
    guard: Guard, handle: Handle, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> Any:
    """READ on the group, DESCRIBE on every topic that it subscribes to by name."""
    if not guard.allows(context, READ, GROUP, request.group_id):
        raise denied_error(GROUP)
    if request.subscribed_topic_names:
        _, denied = split(guard, context, DESCRIBE, dict.fromkeys(request.subscribed_topic_names), str)
        if denied:
            raise denied_error(TOPIC)
    return handle(request, context)


def offset_delete(guard: Guard, handle: Handle, request: OffsetDeleteRequest, context: RequestContext) -> Any:
    """DELETE on the group, READ on each topic."""
    if not guard.allows(context, DELETE, GROUP, request.group_id):
        raise denied_error(GROUP)
    allowed, denied = split(guard, context, READ, request.topics, lambda topic: topic.name)
    if not denied:
        return handle(request, context)
    refused = [
        OffsetDeleteResponseTopic(
            name=topic.name,
            partitions=[
                OffsetDeleteResponsePartition(partition_index=each.partition_index, error_code=_TOPIC_DENIED)
                for each in topic.partitions
            ],
        )
        for topic in denied
    ]
    request.topics = allowed

    def merge(response: OffsetDeleteResponse) -> OffsetDeleteResponse:
        if not response.error_code:
            response.topics += refused
        return response

    def refuse(_: OffsetDeleteRequest, error: KafkaError) -> OffsetDeleteResponse:
        return OffsetDeleteResponse(error_code=error.code)

    return answer(handle, refuse, request, context, merge)


def offset_fetch(guard: Guard, handle: Handle, refuse: Refuse, request: OffsetFetchRequest, context: RequestContext) -> Any:
    """DESCRIBE on the group and on each topic. If all topics are asked for, the denied ones are left out."""
    if context.version >= _GROUPS_FROM:
        return _of_groups(guard, handle, refuse, request, context)
    if not guard.allows(context, DESCRIBE, GROUP, request.group_id):
        if context.version >= _GROUP_ERROR_FROM:
            return OffsetFetchResponse(error_code=_GROUP_DENIED)
        raise denied_error(GROUP)
    if request.topics is None:
        return filtered(handle, request, context, lambda response: _only_described(guard, response, context))
    allowed, denied = split(guard, context, DESCRIBE, request.topics, lambda topic: topic.name)
    if not denied:
        return handle(request, context)
    request.topics = allowed
    refused = [
        OffsetFetchResponseTopic(
            name=topic.name,
            partitions=[
                OffsetFetchResponsePartition(
                    partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=_TOPIC_DENIED
                )
                for index in topic.partition_indexes
            ],
        )
        for topic in denied
    ]

    def merge(response: OffsetFetchResponse) -> OffsetFetchResponse:
        if not response.error_code or context.version < _GROUP_ERROR_FROM:
            response.topics += refused
        return response

    return answer(handle, refuse, request, context, merge)


def _only_described(guard: Guard, response: OffsetFetchResponse, context: RequestContext) -> None:
    response.topics, _ = split(guard, context, DESCRIBE, response.topics, lambda topic: topic.name, quietly=True)


def _of_groups(guard: Guard, handle: Handle, refuse: Refuse, request: OffsetFetchRequest, context: RequestContext) -> Any:
    by_id = context.version >= _FETCH_IDS_FROM
    refused: list[OffsetFetchResponseGroup] = []
    hidden: dict[str, list[OffsetFetchResponseTopics]] = {}
    all_topics: set[str] = set()
    groups = []
    for group in request.groups:
        if not guard.allows(context, DESCRIBE, GROUP, group.group_id):
            refused.append(OffsetFetchResponseGroup(group_id=group.group_id, error_code=_GROUP_DENIED))
            continue
        groups.append(group)
        if group.topics is None:
            all_topics.add(group.group_id)
            continue
        names = {id(topic): guard.topic_name(topic.topic_id) if by_id else topic.name for topic in group.topics}
        known = [topic for topic in group.topics if names[id(topic)] is not None]
        _, denied = split(guard, context, DESCRIBE, known, lambda topic, names=names: names[id(topic)] or "")  # type: ignore[misc]
        denied_ids = {id(topic) for topic in denied}
        group.topics = [topic for topic in group.topics if id(topic) not in denied_ids]
        hidden[group.group_id] = [
            OffsetFetchResponseTopics(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=_TOPIC_DENIED
                    )
                    for index in topic.partition_indexes
                ],
            )
            for topic in denied
        ]
    request.groups = groups
    if not groups:
        return OffsetFetchResponse(groups=refused)

    def merge(response: OffsetFetchResponse) -> OffsetFetchResponse:
        for group in response.groups:
            if group.error_code:
                continue
            if group.group_id in all_topics:
                names = {id(topic): guard.topic_name(topic.topic_id) if by_id else topic.name for topic in group.topics}
                seen, _ = split(
                    guard,
                    context,
                    DESCRIBE,
                    [topic for topic in group.topics if names[id(topic)] is not None],
                    lambda topic, names=names: names[id(topic)] or "",  # type: ignore[misc]
                    quietly=True,
                )
                group.topics = seen
            else:
                group.topics = [*group.topics, *hidden.get(group.group_id, ())]
        response.groups = [*response.groups, *refused]
        return response

    return answer(handle, refuse, request, context, merge)
