"""OffsetForLeaderEpoch: the end offset of a leader epoch in the leader's log (KIP-101, KIP-320).

The reply has the largest epoch that is not above the requested one, and its end offset; -1 for both if there is none.
"""

from __future__ import annotations

from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.partitions import Partitions
from ottla.errors import KafkaError
from ottla.protocol.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from ottla.types import TopicPartition


def handle(partitions: Partitions, request: OffsetForLeaderEpochRequest, context: RequestContext) -> OffsetForLeaderEpochResponse:
    topics: list[OffsetForLeaderTopicResult] = []
    for topic in request.topics:
        answers: list[EpochEndOffset] = []
        for asked in topic.partitions:
            try:
                partition = partitions.get(TopicPartition(topic.topic, asked.partition))
                partition.check_leader(asked.current_leader_epoch)
                end = partition.log.end_offset_for_epoch(asked.leader_epoch)
                answers.append(EpochEndOffset(partition=asked.partition, leader_epoch=end.leader_epoch, end_offset=end.offset))
            except KafkaError as error:
                answers.append(EpochEndOffset(partition=asked.partition, error_code=error.code))
        topics.append(OffsetForLeaderTopicResult(topic=topic.topic, partitions=answers))
    return OffsetForLeaderEpochResponse(topics=topics)


def refuse(request: OffsetForLeaderEpochRequest, error: KafkaError) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResult(
                topic=topic.topic,
                partitions=[EpochEndOffset(partition=asked.partition, error_code=error.code) for asked in topic.partitions],
            )
            for topic in request.topics
        ]
    )
