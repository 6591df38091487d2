"""ConsumerGroupHeartbeat: everything a member of the new group protocol says and hears (KIP-848, F40)."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import RequestContext
from ottla.broker.shard_host import Reply
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

VERSIONS = (0, 1)


def handle(
    request: ConsumerGroupHeartbeatRequest, context: RequestContext
) -> ConsumerGroupHeartbeatResponse | Awaitable[ConsumerGroupHeartbeatResponse]:
    coordinators = context.broker.coordinators
    hosted, shard = coordinators.shard_for(request.group_id)
    reply: Reply[ConsumerGroupHeartbeatResponse] = Reply()
    decision = shard.consumer_group_heartbeat(request, coordinators.caller(context, request.member_id), reply, coordinators.now())
    return coordinators.reply_of(hosted, reply, decision)
