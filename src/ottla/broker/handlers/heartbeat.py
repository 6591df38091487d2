"""Heartbeat: a member of a classic group renews its session, and hears whether a rebalance has begun (F39)."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.coordinators.reply import Reply
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


def handle(
    groups: GroupCoordinators, request: HeartbeatRequest, context: RequestContext
) -> HeartbeatResponse | Awaitable[HeartbeatResponse]:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    try:
        hosted, shard = groups.shards.find(request.group_id)
    except KafkaError as error:
        if error.code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            # Sessions start anew once the shard is loaded: the member need not rejoin.
            return HeartbeatResponse()
        raise
    reply: Reply[HeartbeatResponse] = Reply()
    return groups.shards.reply_of(hosted, reply, shard.heartbeat(request, reply, groups.shards.now()))
