"""UpdateMetadata: the controller tells what clients are to be told of the cluster (F61). See `broker.metadata_cache`."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.network.context import RequestContext
from ottla.protocol.messages.update_metadata import UpdateMetadataRequest

VERSIONS = (0, 8)


def handle(request: UpdateMetadataRequest, context: RequestContext) -> Awaitable[object]:
    return context.broker.cluster.orders.obey(context.version, request, context.connection.number)
