"""LeaderAndIsr, StopReplica and UpdateMetadata, which the controller sends (F61). See `replicas.control_requests`."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.control_requests import ControlRequests


def handle(control_requests: ControlRequests, request: object, context: RequestContext) -> Awaitable[object]:
    return control_requests.handle(context.version, request, context.connection_number)
