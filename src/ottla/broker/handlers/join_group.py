"""JoinGroup: a member joins the next generation of a classic group (F38).

The reply is sent when the generation is complete, at the latest after the rebalance timeout of the members. In errors the
protocol is null, or the empty string before version 7, which has no null.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.coordinators.reply import Reply
from ottla.broker.network.context import RequestContext
from ottla.errors import KafkaError
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

_NULL_PROTOCOL_FROM: Final = 7


def handle(
    groups: GroupCoordinators, request: JoinGroupRequest, context: RequestContext
) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    def in_this_version(response: JoinGroupResponse) -> JoinGroupResponse:
        if response.error_code and context.version >= _NULL_PROTOCOL_FROM:
            response.protocol_name = None
        return response

    try:
        hosted, shard = groups.shards.find(request.group_id)
    except KafkaError as error:
        return in_this_version(refuse(request, error))
    reply: Reply[JoinGroupResponse] = Reply(in_this_version, lambda error: refuse(request, error))
    decision = shard.join_group(request, groups.caller(context, request.member_id), reply, groups.shards.now())
    return groups.shards.reply_of(hosted, reply, decision)


def refuse(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, member_id=request.member_id)
