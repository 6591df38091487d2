"""DescribeProducers: the producer state of a replica, for finding hanging transactions (KIP-664).

Followers answer too, so that replicas can be compared (`kafka-transactions.sh --broker-id`).
"""

from __future__ import annotations

from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.partitions import Partitions
from ottla.cluster.requests import check_topic_name
from ottla.errors import KafkaError
from ottla.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)
from ottla.types import NO_LEADER_EPOCH, TopicPartition


def handle(partitions: Partitions, request: DescribeProducersRequest, context: RequestContext) -> DescribeProducersResponse:
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[_describe(partitions, TopicPartition(topic.name, index)) for index in topic.partition_indexes],
            )
            for topic in request.topics
        ]
    )


def _describe(partitions: Partitions, key: TopicPartition) -> PartitionResponse:
    try:
        check_topic_name(key.topic)
        partition = partitions.get(key)
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
