"""AlterPartitionReassignments: start or cancel moving partitions to other replicas (KIP-455; F56, R18)."""

from __future__ import annotations

from ottla.broker.controller.partition_requests import PartitionRequests, Reassignment
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)


async def handle(
    partition_requests: PartitionRequests, request: AlterPartitionReassignmentsRequest, context: RequestContext
) -> AlterPartitionReassignmentsResponse:
    asked = [
        Reassignment(topic.name, partition.partition_index, None if partition.replicas is None else tuple(partition.replicas))
        for topic in request.topics
        for partition in topic.partitions
    ]
    if len({(each.topic, each.partition) for each in asked}) < len(asked):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a partition must not appear twice in a request")
    outcomes = iter(
        await partition_requests.alter_reassignments(asked, factor_may_change=request.allow_replication_factor_change)
    )
    return AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=request.allow_replication_factor_change,
        responses=[
            ReassignableTopicResponse(
                name=topic.name,
                partitions=[_result(partition.partition_index, next(outcomes)) for partition in topic.partitions],
            )
            for topic in request.topics
        ],
    )


def _result(number: int, error: KafkaError | None) -> ReassignablePartitionResponse:
    if error is None:
        return ReassignablePartitionResponse(partition_index=number)
    return ReassignablePartitionResponse(partition_index=number, error_code=error.code, error_message=error.detail)
