"""SyncGroup: the leader of a classic group hands in the assignment, every member gets its part of it (F38).

A follower's reply waits for the leader; the leader's, and with it all, for the assignment to be written down.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Final

from ottla.broker.coordinators.shard_host import Reply
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

VERSIONS = (0, 5)

_PROTOCOL_FROM: Final = 5
"""Since when a member says which protocol it takes the assignment to be of (KIP-559)."""


def handle(request: SyncGroupRequest, context: RequestContext) -> SyncGroupResponse | Awaitable[SyncGroupResponse]:
    if not request.group_id:
        raise KafkaError(ErrorCode.INVALID_GROUP_ID)
    if context.version >= _PROTOCOL_FROM and (request.protocol_type is None or request.protocol_name is None):
        raise KafkaError(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "SyncGroup has to name the protocol since version 5")
    coordinators = context.broker.coordinators
    hosted, shard = coordinators.shard_for(request.group_id)
    reply: Reply[SyncGroupResponse] = Reply()
    return coordinators.reply_of(hosted, reply, shard.sync_group(request, reply, coordinators.now()))
