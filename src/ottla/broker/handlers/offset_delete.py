"""OffsetDelete: forget a group's offsets of partitions it is not subscribed to (KIP-496).

As in Kafka, what does not exist is refused one by one, and deleting an offset that is not there is no error.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.coordinators.shard_host import Reply
from ottla.broker.handlers.unknown_partitions import answered, refuse_unknown
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)

VERSIONS = (0, 0)


def handle(request: OffsetDeleteRequest, context: RequestContext) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    coordinators = context.broker.coordinators
    unknown = refuse_unknown(request, context.broker.image, _refused)

    def ask() -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
        hosted, shard = coordinators.shard_for(request.group_id)
        reply: Reply[OffsetDeleteResponse] = Reply()
        return coordinators.reply_of(hosted, reply, shard.offset_delete(request, reply, coordinators.now()))

    return answered(ask, unknown, _of_the_group)


def _of_the_group(error: KafkaError) -> OffsetDeleteResponse:
    """What the group refuses it refuses as a whole: nothing is said of partitions then."""
    raise error


def _refused(topic: OffsetDeleteRequestTopic, partitions: list[int], code: ErrorCode) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[OffsetDeleteResponsePartition(partition_index=number, error_code=code) for number in partitions],
    )
