"""UpdateMetadata: the controller publishes the state of the cluster (F61). See `metadata.metadata_cache`."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.control_requests import ControlRequests
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest


def handle(control_requests: ControlRequests, request: UpdateMetadataRequest, context: RequestContext) -> Awaitable[object]:
    return control_requests.handle(context.version, request, context.connection_number)
