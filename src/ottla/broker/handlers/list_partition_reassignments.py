"""ListPartitionReassignments: the partitions that are moving to other replicas (KIP-455; F56). Answered by the controller."""

from __future__ import annotations

from ottla.broker.controller.partition_requests import PartitionRequests
from ottla.broker.network.context import RequestContext
from ottla.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)


def handle(
    partition_requests: PartitionRequests, request: ListPartitionReassignmentsRequest, context: RequestContext
) -> ListPartitionReassignmentsResponse:
    wanted = None
    if request.topics is not None:
        wanted = {(topic.name, number) for topic in request.topics for number in topic.partition_indexes}
    topics: dict[str, OngoingTopicReassignment] = {}
    for name, number, partition in partition_requests.reassignments():
        if wanted is not None and (name, number) not in wanted:
            continue
        topics.setdefault(name, OngoingTopicReassignment(name=name)).partitions.append(
            OngoingPartitionReassignment(
                partition_index=number,
                replicas=list(partition.replicas),
                adding_replicas=list(partition.adding),
                removing_replicas=list(partition.removing),
            )
        )
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))
