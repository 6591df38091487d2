"""StopReplica: the controller takes replicas away from this broker, with or without their data. See `broker.orders`."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.network.context import RequestContext
from ottla.protocol.messages.stop_replica import StopReplicaRequest

VERSIONS = (0, 4)


def handle(request: StopReplicaRequest, context: RequestContext) -> Awaitable[object]:
    return context.broker.cluster.orders.obey(context.version, request, context.connection.number)
