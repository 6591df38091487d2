"""ConsumerGroupHeartbeat: join, leave, subscription and assignment of members of the new group protocol (KIP-848, F40)."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.coordinators.reply import Reply
from ottla.broker.network.context import RequestContext
from ottla.errors import KafkaError
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)


def handle(
    groups: GroupCoordinators, request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    try:
        hosted, shard = groups.shards.find(request.group_id)
    except KafkaError:
        # As in Kafka, an invalid request is refused before NOT_COORDINATOR, after which a client would retry it for ever.
        from ottla.coordinator.group.consumer_member import check_request

        check_request(request, context.version, groups.config)
        raise
    reply: Reply[ConsumerGroupHeartbeatResponse] = Reply()
    decision = shard.consumer_group_heartbeat(request, groups.caller(context, request.member_id), reply, groups.shards.now())
    return groups.shards.reply_of(hosted, reply, decision)
