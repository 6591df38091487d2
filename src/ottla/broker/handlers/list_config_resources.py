"""ListConfigResources: the resources that have settings.

Version 0 (then named ListClientMetricsResources) lists client metrics subscriptions only. Version 1 names the resource types;
none means all.
"""

from __future__ import annotations

from collections.abc import Iterable

from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.cluster.image import ClusterImage
from ottla.cluster.requests import ResourceType
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_LISTED = (
    ResourceType.TOPIC,
    ResourceType.BROKER,
    ResourceType.BROKER_LOGGER,
    ResourceType.CLIENT_METRICS,
    ResourceType.GROUP,
)


def handle(metadata: LocalMetadata, request: ListConfigResourcesRequest, context: RequestContext) -> ListConfigResourcesResponse:
    if context.version == 0:
        wanted = [int(ResourceType.CLIENT_METRICS)]
    else:
        wanted = request.resource_types or [int(known) for known in _LISTED]
    if any(asked not in _LISTED for asked in wanted):
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"supported resource types: {[int(known) for known in _LISTED]}")
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=asked)
            for asked in dict.fromkeys(wanted)
            for name in _names(asked, metadata.image)
        ]
    )


def _names(resource_type: int, image: ClusterImage) -> Iterable[str]:
    if resource_type == ResourceType.TOPIC:
        return image.topics
    if resource_type in (ResourceType.BROKER, ResourceType.BROKER_LOGGER):
        return [str(broker) for broker in image.brokers]
    if resource_type == ResourceType.GROUP:
        return image.group_configs
    return image.client_metrics
