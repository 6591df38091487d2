"""ListGroups: the groups that this broker coordinates, optionally filtered by state and type."""

from __future__ import annotations

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.network.context import RequestContext
from ottla.protocol.messages.list_groups import ListGroupsRequest, ListGroupsResponse


def handle(groups: GroupCoordinators, request: ListGroupsRequest, context: RequestContext) -> ListGroupsResponse:
    found = [group for shard in groups.shards.all() for group in shard.list_groups(request.states_filter, request.types_filter)]
    return ListGroupsResponse(groups=found)
