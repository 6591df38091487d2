"""JoinGroup: a member enters the next generation of a classic group (F38).

The reply comes when the generation is complete, which may take as long as the members' rebalance timeout.
Errors name no protocol: null, and before version 7, which has no null, the empty string.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from ottla.broker.coordinators.shard_host import Reply
from ottla.broker.network.context import RequestContext
from ottla.errors import KafkaError
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

VERSIONS = (0, 9)

_NULL_PROTOCOL_FROM: Final = 7


def handle(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    coordinators = context.broker.coordinators

    def in_this_version(response: JoinGroupResponse) -> JoinGroupResponse:
        if response.error_code and context.version >= _NULL_PROTOCOL_FROM:
            response.protocol_name = None
        return response

    try:
        hosted, shard = coordinators.shard_for(request.group_id)
    except KafkaError as error:
        return in_this_version(refuse(request, error))
    reply: Reply[JoinGroupResponse] = Reply(in_this_version, lambda error: refuse(request, error))
    decision = shard.join_group(request, coordinators.caller(context, request.member_id), reply, coordinators.now())
    return coordinators.reply_of(hosted, reply, decision)


def refuse(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, member_id=request.member_id)
