"""OffsetDelete: delete the offsets of a group for partitions it is not subscribed to (KIP-496).

As in Kafka, unknown partitions are refused one by one, and deleting an offset that does not exist is no error.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.coordinators.reply import Reply
from ottla.broker.handlers.unknown_partitions import answered, refuse_unknown
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)


def handle(
    groups: GroupCoordinators, metadata: LocalMetadata, request: OffsetDeleteRequest, context: RequestContext
) -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    unknown = refuse_unknown(request, metadata.image, _refused)

    def ask() -> OffsetDeleteResponse | Awaitable[OffsetDeleteResponse]:
        hosted, shard = groups.shards.find(request.group_id)
        reply: Reply[OffsetDeleteResponse] = Reply()
        return groups.shards.reply_of(hosted, reply, shard.offset_delete(request, reply, groups.shards.now()))

    return answered(ask, unknown, _of_the_group)


def _of_the_group(error: KafkaError) -> OffsetDeleteResponse:
    """An error of the group is that of the whole reply, without partitions."""
    raise error


def _refused(topic: OffsetDeleteRequestTopic, partitions: list[int], code: ErrorCode) -> OffsetDeleteResponseTopic:
    return OffsetDeleteResponseTopic(
        name=topic.name,
        partitions=[OffsetDeleteResponsePartition(partition_index=number, error_code=code) for number in partitions],
    )
