"""LeaveGroup: members leave a classic group, and the others rebalance at once (F39).

Up to version 2 one member leaves, and its error is that of the reply; from version 3 on the request has a list of members, each
with an error of its own, and static members may be named by their instance id alone.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.coordinators.reply import Reply
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity

_BATCHED_FROM = 3


def handle(
    groups: GroupCoordinators, request: LeaveGroupRequest, context: RequestContext
) -> LeaveGroupResponse | Awaitable[LeaveGroupResponse]:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    hosted, shard = groups.shards.find(request.group_id)
    reply: Reply[LeaveGroupResponse]
    if context.version >= _BATCHED_FROM:
        reply = Reply()
    else:
        request.members = [MemberIdentity(member_id=request.member_id)]
        reply = Reply(_of_one_member)
    return groups.shards.reply_of(hosted, reply, shard.leave_group(request, reply, groups.shards.now()))


def _of_one_member(response: LeaveGroupResponse) -> LeaveGroupResponse:
    errors = [response.error_code, *(member.error_code for member in response.members)]
    return LeaveGroupResponse(error_code=next((error for error in errors if error), ErrorCode.NONE))
