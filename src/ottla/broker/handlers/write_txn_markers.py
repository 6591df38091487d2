"""WriteTxnMarkers: a coordinator tells the leaders of partitions how transactions ended (T12).

Each partition gets a control batch, and is answered when the high watermark has passed it, as with acks=all; the request when all
are. A marker on a partition of offsets settles what the transaction committed for groups.
Version 2 carries the version of the transaction (KIP-1228); before, a marker may have the epoch of the transaction itself.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING

from ottla.broker.coordinators.markers import write_marker
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.types import TopicPartition

if TYPE_CHECKING:
    from ottla.broker.replicas.partition import Partition

VERSIONS = (0, 2)


def handle(
    request: WriteTxnMarkersRequest, context: RequestContext
) -> WriteTxnMarkersResponse | Awaitable[WriteTxnMarkersResponse]:
    broker = context.broker
    response = WriteTxnMarkersResponse()
    waits: list[_Wait] = []
    for marker in request.markers:
        result = WritableTxnMarkerResult(producer_id=marker.producer_id)
        response.markers.append(result)
        for topic in marker.topics:
            answers: list[WritableTxnMarkerPartitionResult] = []
            result.topics.append(WritableTxnMarkerTopicResult(name=topic.name, partitions=answers))
            for index in topic.partition_indexes:
                answer = WritableTxnMarkerPartitionResult(partition_index=index)
                answers.append(answer)
                try:
                    partition, end_offset = write_marker(
                        broker,
                        TopicPartition(topic.name, index),
                        marker.producer_id,
                        marker.producer_epoch,
                        commit=marker.transaction_result,
                        coordinator_epoch=marker.coordinator_epoch,
                        transaction_version=marker.transaction_version,
                    )
                except KafkaError as error:
                    answer.error_code = error.code
                    continue
                if partition.log.high_watermark < end_offset:
                    waits.append(_Wait(partition, end_offset, answer))
    if not waits:
        return response

    def answer_all() -> WriteTxnMarkersResponse:
        for wait in waits:
            if not wait.settled():
                wait.answer.error_code = ErrorCode.REQUEST_TIMED_OUT
        return response

    return broker.purgatory.wait(
        [wait.partition.topic_partition for wait in waits],
        broker.settings.int("request.timeout.ms"),
        ready=lambda: all(wait.settled() for wait in waits),
        answer=answer_all,
    )


class _Wait:
    """A marker that is not on all in-sync replicas yet."""

    __slots__ = ("answer", "end_offset", "partition", "reign")

    def __init__(self, partition: Partition, end_offset: int, answer: WritableTxnMarkerPartitionResult) -> None:
        self.partition = partition
        self.reign = partition.reign
        self.end_offset = end_offset
        self.answer = answer

    def settled(self) -> bool:
        """Whether the outcome is known."""
        partition = self.partition
        try:
            partition.check_leader()
        except KafkaError as error:
            self.answer.error_code = error.code
            return True
        if partition.reign != self.reign:
            self.answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            return True
        return partition.log.high_watermark >= self.end_offset


def refuse(request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=error.code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
