"""ConsumerGroupHeartbeat: everything a member of the new group protocol says and hears (KIP-848, F40)."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.coordinators.shard_host import Reply
from ottla.broker.network.context import RequestContext
from ottla.errors import KafkaError
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

VERSIONS = (0, 1)


def handle(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    coordinators = context.broker.coordinators
    try:
        hosted, shard = coordinators.shard_for(request.group_id)
    except KafkaError:
        # As in Kafka, what is wrong with the request is told before who coordinates the group: the one sends a member away for
        # good, the other to look for its coordinator, again and again.
        from ottla.coordinator.group.consumer_request import check_request

        check_request(request, context.version, coordinators.config)
        raise
    reply: Reply[ConsumerGroupHeartbeatResponse] = Reply()
    decision = shard.consumer_group_heartbeat(request, coordinators.caller(context, request.member_id), reply, coordinators.now())
    return coordinators.reply_of(hosted, reply, decision)
