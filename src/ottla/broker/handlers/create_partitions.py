"""CreatePartitions: raise the number of partitions of a topic (F2)."""

from __future__ import annotations

from ottla.broker.controller.topic_requests import TopicRequests
from ottla.broker.network.context import RequestContext
from ottla.cluster.requests import NewPartitions
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


async def handle(
    topic_requests: TopicRequests, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    asked = [_new_partitions(topic) for topic in request.topics]
    outcomes = await topic_requests.create_partitions(asked, validate_only=request.validate_only)
    results: dict[str, CreatePartitionsTopicResult] = {}
    for topic, outcome in zip(request.topics, outcomes, strict=True):
        error = outcome if isinstance(outcome, KafkaError) else None
        results[topic.name] = CreatePartitionsTopicResult(
            name=topic.name, error_code=error.code if error else ErrorCode.NONE, error_message=error.detail if error else None
        )
    return CreatePartitionsResponse(results=list(results.values()))


def _new_partitions(topic: CreatePartitionsTopic) -> NewPartitions:
    assignments = None
    if topic.assignments is not None:
        assignments = [tuple(assignment.broker_ids) for assignment in topic.assignments]
    return NewPartitions(topic.name, topic.count, assignments)


def refuse(request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    return CreatePartitionsResponse(
        results=[
            CreatePartitionsTopicResult(name=topic.name, error_code=error.code, error_message=error.detail)
            for topic in request.topics
        ]
    )
