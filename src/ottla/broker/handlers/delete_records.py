"""DeleteRecords: raise the log start offset of partitions (L10). Offset -1 is the high watermark.

The leader deletes at once; the reply waits until all live replicas have, or for the timeout of the request.
"""

from __future__ import annotations

from collections.abc import Awaitable
from dataclasses import dataclass

from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.broker.network.purgatory import Purgatory
from ottla.broker.replicas.partition import Partition
from ottla.broker.replicas.partitions import Partitions
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.types import TopicPartition

_NO_LOW_WATERMARK = -1


def handle(
    partitions: Partitions, purgatory: Purgatory, metadata: LocalMetadata, request: DeleteRecordsRequest, context: RequestContext
) -> DeleteRecordsResponse | Awaitable[DeleteRecordsResponse]:
    response = _response(request, ErrorCode.NONE)
    waits: list[_Wait] = []
    for topic, results in zip(request.topics, response.topics, strict=True):
        for asked, result in zip(topic.partitions, results.partitions, strict=True):
            try:
                if topic.name.startswith("__"):
                    image = metadata.image.topics.get(topic.name)
                    if image is not None and image.internal:
                        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is an internal topic")
                partition = partitions.get(TopicPartition(topic.name, asked.partition_index))
                offset = partition.delete_records(asked.offset)
                result.low_watermark = partition.low_watermark
                if result.low_watermark < offset:
                    waits.append(_Wait(partition, offset, result))
            except KafkaError as error:
                result.error_code = error.code
    if not waits:
        return response

    def answer() -> DeleteRecordsResponse:
        for wait in waits:
            if not wait.is_done():
                wait.result.error_code = ErrorCode.REQUEST_TIMED_OUT
        return response

    return purgatory.wait(
        [wait.partition.topic_partition for wait in waits],
        request.timeout_ms,
        ready=lambda: all(wait.is_done() for wait in waits),
        answer=answer,
    )


@dataclass(slots=True)
class _Wait:
    """A partition whose low watermark has not reached the new log start offset."""

    partition: Partition
    offset: int
    result: DeleteRecordsPartitionResult

    def is_done(self) -> bool:
        try:
            self.partition.check_leader()
        except KafkaError as error:
            self.result.error_code = error.code
            self.result.low_watermark = _NO_LOW_WATERMARK
            return True
        self.result.low_watermark = self.partition.low_watermark
        return self.result.low_watermark >= self.offset


def refuse(request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    return _response(request, error.code)


def _response(request: DeleteRecordsRequest, code: ErrorCode) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=asked.partition_index, low_watermark=_NO_LOW_WATERMARK, error_code=code
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
