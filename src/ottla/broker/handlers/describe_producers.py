"""DescribeProducers: what a replica knows of its producers, for finding transactions that hang (KIP-664).

Followers answer too: whoever looks for a difference between replicas asks each (`--broker-id` of Kafka's tool for transactions).
"""

from __future__ import annotations

from ottla.broker.network.context import RequestContext
from ottla.cluster.topic_names import check_topic_name
from ottla.errors import KafkaError
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.types import NO_LEADER_EPOCH, TopicPartition

VERSIONS = (0, 0)


def handle(request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(TopicPartition(topic.name, index), context) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(key: TopicPartition, context: RequestContext) -> PartitionResponse:
    try:
        check_topic_name(key.topic)
        partition = context.broker.partitions.get(key)
        partition.check_replica(NO_LEADER_EPOCH)
    except KafkaError as error:
        return _failed(key.partition, error)
    return PartitionResponse(
        partition_index=key.partition,
        active_producers=[
            ProducerState(
                producer_id=producer.producer_id,
                producer_epoch=producer.epoch,
                last_sequence=producer.last_sequence,
                last_timestamp=producer.last_timestamp,
                coordinator_epoch=producer.coordinator_epoch,
                current_txn_start_offset=producer.txn_first_offset,
            )
            for producer in partition.log.producers
        ],
    )


def _failed(index: int, error: KafkaError) -> PartitionResponse:
    return PartitionResponse(partition_index=index, error_code=error.code, error_message=error.detail)


def refuse(request: DescribeProducersRequest, error: KafkaError) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(name=topic.name, partitions=[_failed(index, error) for index in topic.partition_indexes])
            for topic in request.topics
        ]
    )
