"""AlterPartition: the leader of a partition asks the controller to change the ISR (KIP-497; C05, C06).

Topics are named by name before version 2 and by id from then on; versions before 2 do not know INELIGIBLE_REPLICA.
"""

from __future__ import annotations

from ottla.broker.controller.broker_requests import BrokerRequests
from ottla.broker.network.context import RequestContext
from ottla.cluster.broker_changes import UNKNOWN_EPOCH, IsrProposal
from ottla.cluster.image import PartitionImage
from ottla.errors import ErrorCode
from ottla.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    RequestPartitionData,
    ResponsePartitionData,
    ResponseTopicData,
)

_BY_ID_FROM = 2
_BROKER_EPOCHS_FROM = 3


async def handle(
    broker_requests: BrokerRequests, request: AlterPartitionRequest, context: RequestContext
) -> AlterPartitionResponse:
    response = AlterPartitionResponse()
    proposals: list[tuple[tuple[str | bytes, int], IsrProposal]] = []
    places: list[ResponsePartitionData] = []
    for topic in request.topics:
        name_or_id = bytes(topic.topic_id) if context.version >= _BY_ID_FROM else topic.topic_name
        answer = ResponseTopicData(topic_id=topic.topic_id, topic_name=topic.topic_name)
        response.topics.append(answer)
        for partition in topic.partitions:
            place = ResponsePartitionData(partition_index=partition.partition_index)
            answer.partitions.append(place)
            proposals.append(((name_or_id, partition.partition_index), _proposal(request.broker_id, partition, context.version)))
            places.append(place)
    outcomes = await broker_requests.alter_partitions(request.broker_id, request.broker_epoch, proposals)
    for place, outcome in zip(places, outcomes, strict=True):
        _fill(place, outcome, context.version)
    return response


def _proposal(leader: int, asked: RequestPartitionData, version: int) -> IsrProposal:
    if version >= _BROKER_EPOCHS_FROM:
        isr = [(broker.broker_id, broker.broker_epoch) for broker in asked.new_isr_with_epochs]
    else:
        isr = [(broker, UNKNOWN_EPOCH) for broker in asked.new_isr]
    return IsrProposal(leader, asked.leader_epoch, isr, asked.partition_epoch, bool(asked.leader_recovery_state))


def _fill(place: ResponsePartitionData, outcome: PartitionImage | ErrorCode, version: int) -> None:
    if isinstance(outcome, ErrorCode):
        too_new = outcome is ErrorCode.INELIGIBLE_REPLICA and version < _BY_ID_FROM
        place.error_code = ErrorCode.OPERATION_NOT_ATTEMPTED if too_new else outcome
        return
    place.leader_id = outcome.leader
    place.leader_epoch = outcome.leader_epoch
    place.isr = list(outcome.isr)
    place.leader_recovery_state = int(outcome.recovering)
    place.partition_epoch = outcome.partition_epoch
