"""OffsetDelete: forget a group's offsets of partitions it is not subscribed to (KIP-496).

As in Kafka, what does not exist is refused one by one, and deleting an offset that is not there is no error.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import RequestContext
from ottla.broker.shard_host import Reply
from ottla.cluster.image import ClusterImage
from ottla.errors import ErrorCode
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

VERSIONS = (0, 0)


def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    coordinators = context.broker.coordinators
    hosted, shard = coordinators.shard_for(request.group_id)
    refused = _refuse_unknown(request, context.broker.image)
    reply: Reply[OffsetDeleteResponse] = Reply((lambda response: _merged(response, refused)) if refused else None)
    return coordinators.reply_of(hosted, reply, shard.offset_delete(request, reply, coordinators.now()))


def _refuse_unknown(request: OffsetDeleteRequest, image: ClusterImage) -> list[OffsetDeleteResponseTopic]:
    """Take what does not exist out of the request, and return the answers to it."""
    refused: list[OffsetDeleteResponseTopic] = []
    kept: list[OffsetDeleteRequestTopic] = []
    for topic in request.topics:
        known = image.topics.get(topic.name)
        count = len(known.partitions) if known is not None else 0
        missing = [partition for partition in topic.partitions if not 0 <= partition.partition_index < count]
        if missing:
            refused.append(
                OffsetDeleteResponseTopic(
                    name=topic.name,
                    partitions=[
                        OffsetDeleteResponsePartition(
                            partition_index=partition.partition_index, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                        )
                        for partition in missing
                    ],
                )
            )
            topic.partitions = [partition for partition in topic.partitions if 0 <= partition.partition_index < count]
        if topic.partitions:
            kept.append(topic)
    request.topics = kept
    return refused


def _merged(response: OffsetDeleteResponse, refused: list[OffsetDeleteResponseTopic]) -> OffsetDeleteResponse:
    by_name = {topic.name: topic for topic in response.topics}
    for topic in refused:
        known = by_name.get(topic.name)
        if known is None:
            response.topics.append(topic)
        else:
            known.partitions += topic.partitions
    return response
