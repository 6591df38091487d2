"""OffsetCommit: a group keeps how far it has read (F41, F42).

Answered when the offsets are committed to the topic of offsets: with this broker alone in sync, at once. Partitions that do not
exist are refused one by one, the others are committed. Version 0, which wrote to ZooKeeper, is not served; from version 10 on
topics are named by id.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from ottla.broker.context import RequestContext
from ottla.broker.shard_host import Reply
from ottla.cluster.image import ClusterImage
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

VERSIONS = (1, 10)

_TOPIC_IDS_FROM: Final = 10


def handle(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    coordinators = context.broker.coordinators
    refused = _refuse_unknown(request, context.broker.image, context.version)
    if refused and not request.topics:
        return OffsetCommitResponse(topics=refused)
    hosted, shard = coordinators.shard_for(request.group_id)
    reply: Reply[OffsetCommitResponse] = Reply((lambda response: _merged(response, refused)) if refused else None)
    decision = shard.offset_commit(request, context.version, reply, coordinators.now())
    return coordinators.reply_of(hosted, reply, decision)


def _refuse_unknown(request: OffsetCommitRequest, image: ClusterImage, version: int) -> list[OffsetCommitResponseTopic]:
    """Take what does not exist out of the request, and return the answers to it."""
    refused: list[OffsetCommitResponseTopic] = []
    kept: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if version >= _TOPIC_IDS_FROM:
            topic.name = image.topic_names.get(topic.topic_id, "")
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        known = image.topics.get(topic.name)
        if known is None:
            refused.append(_refused(topic, topic.partitions, unknown))
            continue
        count = len(known.partitions)
        if any(not 0 <= partition.partition_index < count for partition in topic.partitions):
            missing = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
            refused.append(_refused(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
        if topic.partitions:
            kept.append(topic)
    request.topics = kept
    return refused


def _refused(
    topic: OffsetCommitRequestTopic, partitions: list[OffsetCommitRequestPartition], code: ErrorCode
) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[
            OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code) for partition in partitions
        ],
    )


def _merged(response: OffsetCommitResponse, refused: list[OffsetCommitResponseTopic]) -> OffsetCommitResponse:
    by_name = {(topic.name, topic.topic_id): topic for topic in response.topics}
    for topic in refused:
        known = by_name.get((topic.name, topic.topic_id))
        if known is None:
            response.topics.append(topic)
        else:
            known.partitions += topic.partitions
    return response


def refuse(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return OffsetCommitResponse(topics=[_refused(topic, topic.partitions, error.code) for topic in request.topics])
