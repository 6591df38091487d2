"""DescribeTopicPartitions: partitions of topics in order of name, one page at a time.

A page ends at the client's limit or at `max.request.partition.size.limit`, whichever is smaller; the cursor in the reply names
the first partition of the next page. Requested topics that do not exist get an error and do not count.
"""

from __future__ import annotations

from ottla.broker.handlers.metadata import missing_topic_error, offline_partitions, offline_replicas
from ottla.broker.handlers.operations import TOPIC_OPERATIONS
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.partitions import Partitions
from ottla.cluster.image import INTERNAL_TOPICS, NO_LEADER, TopicImage
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    ResponseCursor,
)


def handle(
    partitions: Partitions, metadata: LocalMetadata, request: DescribeTopicPartitionsRequest, context: RequestContext
) -> DescribeTopicPartitionsResponse:
    image = metadata.image
    cursor = request.cursor
    all_topics = not request.topics
    names = set(image.topics) if all_topics else {topic.name for topic in request.topics}
    if cursor is not None:
        if not all_topics and cursor.topic_name not in names:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"the cursor's topic {cursor.topic_name} is not one of the requested topics"
            )
        if cursor.partition_index < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"the cursor's partition {cursor.partition_index} is negative")
        names = {name for name in names if name >= cursor.topic_name}
    limit = metadata.settings.int("max.request.partition.size.limit")
    left = max(min(limit, request.response_partition_limit), 1)
    response = DescribeTopicPartitionsResponse()
    for name in sorted(names):
        if left == 0:
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=0)
            break
        topic = image.topics.get(name)
        if topic is None:
            response.topics.append(
                DescribeTopicPartitionsResponseTopic(
                    error_code=missing_topic_error(name),
                    name=name,
                    is_internal=name in INTERNAL_TOPICS,
                    topic_authorized_operations=TOPIC_OPERATIONS,
                )
            )
            continue
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        end = min(first + left, len(topic.partitions))
        response.topics.append(_topic(partitions, metadata, topic, first, end, context.listener_name))
        left -= max(0, end - first)
        if end < len(topic.partitions):
            response.next_cursor = ResponseCursor(topic_name=name, partition_index=end)
            break
    return response


def _topic(
    partitions: Partitions, metadata: LocalMetadata, topic: TopicImage, first: int, end: int, listener: str
) -> DescribeTopicPartitionsResponseTopic:
    offline = offline_partitions(topic, partitions)
    return DescribeTopicPartitionsResponseTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.internal,
        partitions=[_partition(metadata, topic, number, listener, offline=number in offline) for number in range(first, end)],
        topic_authorized_operations=TOPIC_OPERATIONS,
    )


def _partition(
    metadata: LocalMetadata, topic: TopicImage, number: int, listener: str, *, offline: bool
) -> DescribeTopicPartitionsResponsePartition:
    partition = topic.partitions[number]
    leader = metadata.image.brokers.get(partition.leader)
    led = leader is not None and leader.endpoint(listener) is not None
    led = led and not (offline and partition.leader == metadata.broker_id)
    return DescribeTopicPartitionsResponsePartition(
        partition_index=number,
        leader_id=partition.leader if led else NO_LEADER,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=list(partition.isr),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=offline_replicas(metadata, partition, listener, offline=offline),
    )


def refuse(request: DescribeTopicPartitionsRequest, error: KafkaError) -> DescribeTopicPartitionsResponse:
    return DescribeTopicPartitionsResponse(
        topics=[DescribeTopicPartitionsResponseTopic(error_code=error.code, name=topic.name) for topic in request.topics]
    )
