"""DeleteRecords: move the start of partitions forward (L10). Offset -1 is the high watermark."""

from __future__ import annotations

from ottla.broker.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)
from ottla.types import TopicPartition

VERSIONS = (0, 2)

_NO_LOW_WATERMARK = -1


def handle(request: DeleteRecordsRequest, context: RequestContext) -> DeleteRecordsResponse:
    broker = context.broker
    topics: list[DeleteRecordsTopicResult] = []
    for topic in request.topics:
        results: list[DeleteRecordsPartitionResult] = []
        for asked in topic.partitions:
            low_watermark, code = _NO_LOW_WATERMARK, ErrorCode.NONE
            try:
                if topic.name.startswith("__"):
                    image = broker.image.topics.get(topic.name)
                    if image is not None and image.internal:
                        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{topic.name} is the brokers' own")
                partition = broker.partitions.get(TopicPartition(topic.name, asked.partition_index))
                low_watermark = partition.delete_records(asked.offset)
            except KafkaError as error:
                code = error.code
            results.append(
                DeleteRecordsPartitionResult(partition_index=asked.partition_index, low_watermark=low_watermark, error_code=code)
            )
        topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))
    return DeleteRecordsResponse(topics=topics)


def refuse(request: DeleteRecordsRequest, error: KafkaError) -> DeleteRecordsResponse:
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=asked.partition_index, low_watermark=_NO_LOW_WATERMARK, error_code=error.code
                    )
                    for asked in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
