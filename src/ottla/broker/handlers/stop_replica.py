"""StopReplica: the controller stops replicas of this broker, and deletes them if it says so. See `replicas.control_requests`."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.control_requests import ControlRequests
from ottla.protocol.messages.stop_replica import StopReplicaRequest


def handle(control_requests: ControlRequests, request: StopReplicaRequest, context: RequestContext) -> Awaitable[object]:
    return control_requests.handle(context.version, request, context.connection_number)
