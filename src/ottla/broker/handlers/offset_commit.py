"""OffsetCommit: a group stores the offsets up to which it has consumed (F41, F42).

Answered when the records are committed to `__consumer_offsets`, which is at once if this broker is the only in-sync replica.
Unknown partitions are refused one by one, the others are committed. Version 0, which wrote to ZooKeeper, is not served. From
version 10 on topics are named by id.
"""

from __future__ import annotations

from collections.abc import Awaitable
from functools import partial
from typing import Final

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.coordinators.reply import Reply
from ottla.broker.handlers.unknown_partitions import answered, refuse_unknown
from ottla.broker.metadata.local_metadata import LocalMetadata
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

_TOPIC_IDS_FROM: Final = 10


def handle(
    groups: GroupCoordinators, metadata: LocalMetadata, request: OffsetCommitRequest, context: RequestContext
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    version, image = context.version, metadata.image
    nameless = _name_topics(request, image) if version >= _TOPIC_IDS_FROM else []
    unknown = nameless if _all_known(request, image) else [*refuse_unknown(request, image, _refused), *nameless]
    if not unknown:
        return _commit(groups, request, version)
    if not request.topics:
        return OffsetCommitResponse(topics=unknown)
    return answered(partial(_commit, groups, request, version), unknown, partial(refuse, request))


def _commit(
    groups: GroupCoordinators, request: OffsetCommitRequest, version: int
) -> OffsetCommitResponse | Awaitable[OffsetCommitResponse]:
    hosted, shard = groups.shards.find(request.group_id)
    reply: Reply[OffsetCommitResponse] = Reply()
    return groups.shards.reply_of(hosted, reply, shard.offset_commit(request, version, reply, groups.shards.now()))


def _all_known(request: OffsetCommitRequest, image: ClusterImage) -> bool:
    """Whether there is nothing to refuse, which is the usual case."""
    for topic in request.topics:
        known = image.topics.get(topic.name)
        if known is None or not topic.partitions:
            return False
        count: int = len(known.partitions)
        for partition in topic.partitions:
            if not 0 <= partition.partition_index < count:
                return False
    return True


def _name_topics(request: OffsetCommitRequest, image: ClusterImage) -> list[OffsetCommitResponseTopic]:
    """Set the names of topics that came with ids. Topics with an unknown id are removed; returned are their results."""
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
