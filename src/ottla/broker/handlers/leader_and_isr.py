"""LeaderAndIsr: the controller tells which partitions this broker leads and which it follows (F61). See `broker.orders`."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.network.context import RequestContext
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest

VERSIONS = (0, 7)


def handle(request: LeaderAndIsrRequest, context: RequestContext) -> Awaitable[object]:
    return context.broker.cluster.orders.obey(context.version, request, context.connection.number)
