"""LeaderAndIsr: the controller makes this broker leader or follower of partitions (F61). See `replicas.control_requests`."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.control_requests import ControlRequests
from ottla.protocol.messages.leader_and_isr import LeaderAndIsrRequest


def handle(control_requests: ControlRequests, request: LeaderAndIsrRequest, context: RequestContext) -> Awaitable[object]:
    return control_requests.handle(context.version, request, context.connection_number)
