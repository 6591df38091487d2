"""JoinGroup: a member enters the next generation of a classic group (F38).

The reply comes when the generation is complete, which may take as long as the members' rebalance timeout.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.context import RequestContext
from ottla.broker.shard_host import Reply
from ottla.errors import KafkaError
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

VERSIONS = (0, 9)


def handle(request: JoinGroupRequest, context: RequestContext) -> JoinGroupResponse | Awaitable[JoinGroupResponse]:
    coordinators = context.broker.coordinators
    hosted, shard = coordinators.shard_for(request.group_id)
    reply: Reply[JoinGroupResponse] = Reply()
    decision = shard.join_group(request, coordinators.caller(context), reply, coordinators.now())
    return coordinators.reply_of(hosted, reply, decision)


def refuse(request: JoinGroupRequest, error: KafkaError) -> JoinGroupResponse:
    return JoinGroupResponse(error_code=error.code, member_id=request.member_id)
