"""ListGroups: the groups this broker coordinates, all of them or those in the states and of the types asked for."""

from __future__ import annotations

from ottla.broker.network.context import RequestContext
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse

VERSIONS = (0, 5)


def handle(request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    groups = [
        group
        for shard in context.broker.coordinators.shards()
        for group in shard.list_groups(request.states_filter, request.types_filter)
    ]
    return ListGroupsResponse(groups=groups)
