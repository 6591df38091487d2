"""OffsetDelete: forget a group's offsets of partitions it is not subscribed to (KIP-496).

As in Kafka, what does not exist is refused one by one, and deleting an offset that is not there is no error.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import RequestContext
from ottla.broker.handlers.unknown_partitions import merged, refuse_unknown
from ottla.broker.shard_host import Reply
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
    request.topics, refused = refuse_unknown(request.topics, context.broker.image, _refused)
    reply: Reply[OffsetDeleteResponse] = Reply((lambda response: merged(response, refused)) if refused else None)
    return coordinators.reply_of(hosted, reply, shard.offset_delete(request, reply, coordinators.now()))


def _refused(topic: OffsetDeleteRequestTopic, partitions: list[int], code: ErrorCode) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[OffsetDeleteResponsePartition(partition_index=number, error_code=code) for number in partitions],
    )
