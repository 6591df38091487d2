"""WriteTxnMarkers: a transaction coordinator has partition leaders write the markers that end transactions (T12).

The broker appends one control batch to each partition and answers when all of them are committed, as for acks=all (`CommitWait`).
A marker on `__consumer_offsets` completes the offsets that the transaction committed.
Version 2 carries the transaction version (KIP-1228); before it, a marker may have the producer epoch of the transaction itself.
"""

from __future__ import annotations

from collections.abc import Awaitable

from ottla.broker.coordinators.marker_writer import MarkerWriter
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.commit_wait import CommitWait
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)
from ottla.types import TopicPartition


def handle(
    marker_writer: MarkerWriter,
    metadata: LocalMetadata,
    request: WriteTxnMarkersRequest,
    context: RequestContext,
) -> WriteTxnMarkersResponse | Awaitable[WriteTxnMarkersResponse]:
    response = _response(request, ErrorCode.NONE)
    waits: list[tuple[CommitWait, WritableTxnMarkerPartitionResult]] = []
    for marker, result in zip(request.markers, response.markers, strict=True):
        for topic in result.topics:
            for answer in topic.partitions:
                try:
                    wait = marker_writer.write(
                        TopicPartition(topic.name, answer.partition_index),
                        marker.producer_id,
                        marker.producer_epoch,
                        commit=marker.transaction_result,
                        coordinator_epoch=marker.coordinator_epoch,
                        transaction_version=marker.transaction_version,
                    )
                except KafkaError as error:
                    answer.error_code = error.code
                    continue
                if wait is not None:
                    waits.append((wait, answer))
    if not waits:
        return response

    def answer_all() -> WriteTxnMarkersResponse:
        for wait, answer in waits:
            answer.error_code = wait.error.code if wait.error is not None else ErrorCode.NONE
        return response

    timeout_ms = metadata.settings.int("request.timeout.ms")
    return marker_writer.when_committed([wait for wait, _ in waits], timeout_ms, answer_all)


def refuse(request: WriteTxnMarkersRequest, error: KafkaError) -> WriteTxnMarkersResponse:
    return _response(request, error.code)


def _response(request: WriteTxnMarkersRequest, code: ErrorCode) -> WriteTxnMarkersResponse:
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in request.markers
        ]
    )
