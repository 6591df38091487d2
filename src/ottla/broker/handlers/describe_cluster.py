"""DescribeCluster: the cluster id, the controller, and the brokers with their addresses for the client's listener."""

from __future__ import annotations

from typing import Final

from ottla.broker.handlers.operations import CLUSTER_OPERATIONS
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_cluster import DescribeClusterBroker, DescribeClusterRequest, DescribeClusterResponse

_BROKERS: Final = 1
_CONTROLLERS: Final = 2


def handle(metadata: LocalMetadata, request: DescribeClusterRequest, context: RequestContext) -> DescribeClusterResponse:
    if request.endpoint_type == _CONTROLLERS:
        raise KafkaError(ErrorCode.MISMATCHED_ENDPOINT_TYPE, "this is the address of a broker, which does not list controllers")
    if request.endpoint_type != _BROKERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"unknown endpoint type {request.endpoint_type}")
    image = metadata.image
    response = DescribeClusterResponse(
        cluster_id=image.cluster_id,
        controller_id=image.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=broker.id, host=endpoint.host, port=endpoint.port, rack=broker.rack)
            for broker in image.brokers.values()
            if (endpoint := broker.endpoint(context.listener_name)) is not None
        ],
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = CLUSTER_OPERATIONS
    return response
