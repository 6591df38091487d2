"""SyncGroup: the leader of a classic group sends the assignment, and every member gets its part (F38).

The replies of followers wait for the leader's assignment; all replies wait until it is committed.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.coordinators.reply import Reply
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_PROTOCOL_FROM: Final = 5
"""The version from which members name the protocol (KIP-559)."""


def handle(
    groups: GroupCoordinators, request: SyncGroupRequest, context: RequestContext
) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if context.version >= _PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "SyncGroup must name the protocol from version 5 on")
    hosted, shard = groups.shards.find(request.group_id)
    reply: Reply[SyncGroupResponse] = Reply()
    return groups.shards.reply_of(hosted, reply, shard.sync_group(request, reply, groups.shards.now()))
