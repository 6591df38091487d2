"""Authorizes requests about topics: Metadata, DescribeTopicPartitions, CreateTopics, DeleteTopics, OffsetForLeaderEpoch.

What is denied is refused before anything tells whether it exists.
"""

from __future__ import annotations

from typing import Any, Final

from ottla.broker.authorization.guard import Guard
from ottla.broker.authorization.merging import AUTHORIZATION_FAILED, Handle, Refuse, answer, filtered, split
from ottla.broker.authorization.rows import ByItem, handle_allowed
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.cluster.image import INTERNAL_TOPICS
from ottla.errors import ErrorCode
from ottla.protocol.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from ottla.protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse, MetadataResponseTopic
from ottla.protocol.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest
from ottla.security.acl import (
    CLUSTER,
    CLUSTER_ACTION,
    CLUSTER_NAME,
    CREATE,
    DELETE,
    DESCRIBE,
    DESCRIBE_CONFIGS,
    TOPIC,
)
from ottla.types import ZERO_UUID

_DENIED: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_BY_ID_FROM: Final = 12
_BY_EPOCH: Final = ByItem(DESCRIBE, "topics", "topics", "topic")


def metadata(
    guard: Guard, metadata: LocalMetadata, handle: Handle, refuse: Refuse, request: MetadataRequest, context: RequestContext
) -> Any:
    """DESCRIBE on each topic; to create it CREATE on the cluster or the topic. Of all topics the denied ones are left out."""
    topics = request.topics
    if topics is None or (context.version == 0 and not topics):
        return filtered(handle, request, context, lambda response: _only_described(guard, request, response, context))
    if any(
        (asked.name is None and asked.topic_id == ZERO_UUID)
        or (context.version < _BY_ID_FROM and (asked.name is None or asked.topic_id != ZERO_UUID))
        for asked in topics
    ):
        return handle(request, context)  # invalid, and told so
    ids = list(dict.fromkeys(bytes(asked.topic_id) for asked in topics if asked.topic_id != ZERO_UUID))
    refused = _denied_ids(guard, request, ids, context) if ids else _denied_names(guard, metadata, request, topics, context)

    def merge(response: MetadataResponse) -> MetadataResponse:
        if not request.topics:
            response.topics = []  # in version 0 an empty list asks for all
        _tell_operations(guard, request, response, context)
        response.topics += refused
        return response

    return answer(handle, refuse, request, context, merge)


def _only_described(guard: Guard, request: MetadataRequest, response: MetadataResponse, context: RequestContext) -> None:
    response.topics, _ = split(guard, context, DESCRIBE, response.topics, lambda topic: topic.name or "", quietly=True)
    _tell_operations(guard, request, response, context)


def _denied_ids(guard: Guard, request: MetadataRequest, ids: list[bytes], context: RequestContext) -> list[MetadataResponseTopic]:
    names = {topic_id: guard.topic_name(topic_id) for topic_id in ids}
    _, denied = split(guard, context, DESCRIBE, [each for each in ids if names[each] is not None], lambda each: names[each] or "")
    request.topics = [MetadataRequestTopic(topic_id=each, name=None) for each in ids if each not in denied]
    # Topic ids are no secrets, names are.
    return [MetadataResponseTopic(error_code=_DENIED, name=None, topic_id=each) for each in denied]


def _denied_names(
    guard: Guard, metadata: LocalMetadata, request: MetadataRequest, topics: list[MetadataRequestTopic], context: RequestContext
) -> list[MetadataResponseTopic]:
    names = list(dict.fromkeys(asked.name or "" for asked in topics))
    described, denied = split(guard, context, DESCRIBE, names, str)
    refused = [MetadataResponseTopic(error_code=_DENIED, name=name) for name in denied]
    existing = metadata.image.topics
    missing = [name for name in described if name not in existing]
    creates = request.allow_auto_topic_creation and metadata.settings.bool("auto.create.topics.enable")
    if missing and creates and not guard.allows_on_cluster(context, CREATE, quietly=True):
        _, uncreated = split(guard, context, CREATE, missing, str)
        refused += [
            MetadataResponseTopic(error_code=_DENIED, name=name, is_internal=name in INTERNAL_TOPICS) for name in uncreated
        ]
        described = [name for name in described if name not in uncreated]
    request.topics = [MetadataRequestTopic(name=name) for name in described]
    return refused


def _tell_operations(guard: Guard, request: MetadataRequest, response: MetadataResponse, context: RequestContext) -> None:
    if request.include_topic_authorized_operations:
        for topic in response.topics:
            if topic.name is not None and topic.error_code != ErrorCode.UNKNOWN_TOPIC_ID:
                topic.topic_authorized_operations = guard.authorized_operations(context, TOPIC, topic.name)
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(guard, context)


def cluster_operations(guard: Guard, context: RequestContext) -> int:
    """None without DESCRIBE (AC10)."""
    return guard.authorized_operations(context, CLUSTER, CLUSTER_NAME) if guard.allows_on_cluster(context, DESCRIBE) else 0


def describe_cluster(guard: Guard, handle: Handle, request: Any, context: RequestContext) -> Any:
    """Nothing is needed to see the brokers; the cluster's operations are told to who may describe it."""

    def tell(response: Any) -> None:
        if request.include_cluster_authorized_operations and not response.error_code:
            response.cluster_authorized_operations = cluster_operations(guard, context)

    return filtered(handle, request, context, tell)


def describe_topic_partitions(
    guard: Guard,
    metadata: LocalMetadata,
    handle: Handle,
    refuse: Refuse,
    request: DescribeTopicPartitionsRequest,
    context: RequestContext,
) -> Any:
    names = [topic.name for topic in request.topics]
    cursor = request.cursor
    all_topics = not names
    if not all_topics and cursor is not None and cursor.topic_name not in names:
        return handle(request, context)  # invalid, and told so
    if all_topics:
        names = list(metadata.image.topics)
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    described, denied = split(guard, context, DESCRIBE, dict.fromkeys(names), str, quietly=all_topics)
    refused = [] if all_topics else [DescribeTopicPartitionsResponseTopic(error_code=_DENIED, name=name) for name in denied]
    if not described:
        return DescribeTopicPartitionsResponse(topics=refused)
    request.topics = [TopicRequest(name=name) for name in described]
    if cursor is not None and cursor.topic_name not in described:
        request.cursor = None  # its topic is gone or denied: go on with the next

    def merge(response: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
        for topic in response.topics:
            topic.topic_authorized_operations = guard.authorized_operations(context, TOPIC, topic.name or "")
        response.topics += refused
        return response

    return answer(handle, refuse, request, context, merge)


def create_topics(guard: Guard, handle: Handle, refuse: Refuse, request: CreateTopicsRequest, context: RequestContext) -> Any:
    """CREATE on the cluster or the topic. Without DESCRIBE_CONFIGS the configs of the new topic are not told."""
    topics = request.topics
    denied: list[Any] = []
    if not guard.allows_on_cluster(context, CREATE, quietly=True):
        topics, denied = split(guard, context, CREATE, topics, lambda topic: topic.name)
    hidden = {
        topic.name for topic in request.topics if not guard.allows(context, DESCRIBE_CONFIGS, TOPIC, topic.name, quietly=True)
    }
    refused = [
        CreatableTopicResult(name=name, error_code=_DENIED, error_message=AUTHORIZATION_FAILED)
        for name in dict.fromkeys(topic.name for topic in denied)
    ]
    if not denied and not hidden:
        return handle(request, context)
    request.topics = topics
    if not topics:
        return CreateTopicsResponse(topics=refused)

    def merge(response: CreateTopicsResponse) -> CreateTopicsResponse:
        for result in response.topics:
            if result.name in hidden and not result.error_code:
                result.topic_config_error_code = _DENIED
                result.num_partitions, result.replication_factor, result.configs = -1, -1, []
        response.topics += refused
        return response

    return answer(handle, refuse, request, context, merge)


def delete_topics(guard: Guard, handle: Handle, refuse: Refuse, request: DeleteTopicsRequest, context: RequestContext) -> Any:
    """DELETE. By id, without DESCRIBE, the name is not told."""
    refused: list[DeletableTopicResult] = []
    if request.topics:
        kept = []
        for topic in request.topics:
            by_id = topic.topic_id != ZERO_UUID
            name = guard.topic_name(bytes(topic.topic_id)) if by_id else topic.name
            if name is None or (by_id and topic.name is not None):
                kept.append(topic)  # invalid or unknown, and told so
                continue
            described = not by_id or guard.allows(context, DESCRIBE, TOPIC, name)
            if described and guard.allows(context, DELETE, TOPIC, name):
                kept.append(topic)
            else:
                shown = name if described else None
                refused.append(DeletableTopicResult(name=shown, topic_id=topic.topic_id, error_code=_DENIED))
        request.topics = kept
    else:
        request.topic_names, denied = split(guard, context, DELETE, request.topic_names, str)
        refused = [DeletableTopicResult(name=name, error_code=_DENIED) for name in denied]
    if not refused:
        return handle(request, context)
    if not request.topics and not request.topic_names:
        return DeleteTopicsResponse(responses=refused)

    def merge(response: DeleteTopicsResponse) -> DeleteTopicsResponse:
        response.responses += refused
        return response

    return answer(handle, refuse, request, context, merge)


def offset_for_leader_epoch(
    guard: Guard, handle: Handle, refuse: Refuse, request: OffsetForLeaderEpochRequest, context: RequestContext
) -> Any:
    """CLUSTER_ACTION, as a follower has, or DESCRIBE on each topic."""
    if guard.allows_on_cluster(context, CLUSTER_ACTION, quietly=True):
        return handle(request, context)
    allowed, denied = split(guard, context, DESCRIBE, request.topics, lambda topic: topic.topic)
    return handle_allowed(handle, refuse, request, context, _BY_EPOCH, allowed, denied)
