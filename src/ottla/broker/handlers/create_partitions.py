"""CreatePartitions: raise the number of partitions of a topic (F2)."""

from __future__ import annotations

from typing import Final

from ottla.broker.controller.topic_requests import TopicRequests
from ottla.broker.handlers.change_log import log_change
from ottla.broker.network.context import RequestContext
from ottla.cluster.requests import NewPartitions
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)

_STRICT_FROM: Final = 3
"""The version from which on a topic above the quota of mutations is refused (KIP-599)."""


async def handle(
    topic_requests: TopicRequests, request: CreatePartitionsRequest, context: RequestContext
) -> CreatePartitionsResponse:
    asked = [_new_partitions(topic) for topic in request.topics]
    charge = context.meter.charge(context.version >= _STRICT_FROM) if context.meter is not None else None
    outcomes = await topic_requests.create_partitions(asked, validate_only=request.validate_only, charge=charge)
    results: dict[str, CreatePartitionsTopicResult] = {}
    for topic, outcome in zip(request.topics, outcomes, strict=True):
        error = outcome if isinstance(outcome, KafkaError) else None
        if error is None and not request.validate_only:
            log_change(context, f"raised topic {topic.name} to {topic.count} partitions")
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
