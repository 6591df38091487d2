"""OffsetCommit: a group keeps how far it has read (F41, F42).

Answered when the offsets are committed to the topic of offsets: with this broker alone in sync, at once. Partitions that do not
exist are refused one by one, the others are committed. Version 0, which wrote to ZooKeeper, is not served; from version 10 on
topics are named by id.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Final

from ottla.broker.coordinators.reply import Reply
from ottla.broker.handlers.offset_commit_quick import quick as quick
from ottla.broker.handlers.unknown_partitions import answered, refuse_unknown
from ottla.broker.network.context import RequestContext
from ottla.cluster.image import ClusterImage
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

VERSIONS = (1, 10)

_TOPIC_IDS_FROM: Final = 10


def handle(request: OffsetCommitRequest, context: RequestContext) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    groups = context.broker.groups
    image = context.broker.image
    nameless = _with_names(request, image) if context.version >= _TOPIC_IDS_FROM else []
    unknown = [*refuse_unknown(request, image, _refused), *nameless]

    def ask() -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
        hosted, shard = groups.shards.find(request.group_id)
        reply: Reply[OffsetCommitResponse] = Reply()
        return groups.shards.reply_of(hosted, reply, shard.offset_commit(request, context.version, reply, groups.shards.now()))

    if not unknown:
        return ask()
    return answered(ask, unknown, partial(refuse, request)) if request.topics else OffsetCommitResponse(topics=unknown)


def _with_names(request: OffsetCommitRequest, image: ClusterImage) -> list[OffsetCommitResponseTopic]:
    """Give the topics, which came with ids, their names. Those that have none are taken out; returned are the answers to them."""
    refused: list[OffsetCommitResponseTopic] = []
    kept: list[OffsetCommitRequestTopic] = []
    for topic in request.topics:
        topic.name = image.topic_names.get(topic.topic_id, "")
        if topic.name:
            kept.append(topic)
        else:
            refused.append(_refused(topic, [each.partition_index for each in topic.partitions], ErrorCode.UNKNOWN_TOPIC_ID))
    request.topics = kept
    return refused


def _refused(topic: OffsetCommitRequestTopic, partitions: list[int], code: ErrorCode) -> OffsetCommitResponseTopic:
    return OffsetCommitResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        partitions=[OffsetCommitResponsePartition(partition_index=number, error_code=code) for number in partitions],
    )


def refuse(request: OffsetCommitRequest, error: KafkaError) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[_refused(topic, [each.partition_index for each in topic.partitions], error.code) for topic in request.topics]
    )
