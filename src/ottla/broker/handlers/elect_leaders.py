"""ElectLeaders: elect the preferred leader, or (unclean) any live replica (KIP-460; F54).

Without a list it covers all partitions that need an election, and only those are in the reply.
"""

from __future__ import annotations

from ottla.broker.controller.partition_requests import PartitionRequests
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

_PREFERRED, _UNCLEAN = 0, 1


async def handle(
    partition_requests: PartitionRequests, request: ElectLeadersRequest, context: RequestContext
) -> ElectLeadersResponse:
    if request.election_type not in (_PREFERRED, _UNCLEAN):
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"unknown election type {request.election_type}")
    asked = None
    if request.topic_partitions is not None:
        asked = list(dict.fromkeys((topic.topic, number) for topic in request.topic_partitions for number in topic.partitions))
    outcomes = await partition_requests.elect_leaders(asked, unclean=request.election_type == _UNCLEAN)
    results: dict[str, ReplicaElectionResult] = {}
    for name, number, error in outcomes:
        results.setdefault(name, ReplicaElectionResult(topic=name)).partition_result.append(_result(number, error))
    return ElectLeadersResponse(replica_election_results=list(results.values()))


def _result(number: int, error: KafkaError | None) -> PartitionResult:
    if error is None:
        return PartitionResult(partition_id=number)
    return PartitionResult(partition_id=number, error_code=error.code, error_message=error.detail)


def refuse(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    """Version 0 has no top-level error: each partition carries it."""
    return ElectLeadersResponse(
        error_code=error.code,
        replica_election_results=[
            ReplicaElectionResult(topic=topic.topic, partition_result=[_result(number, error) for number in topic.partitions])
            for topic in request.topic_partitions or ()
        ],
    )
