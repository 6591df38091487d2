"""CreateTopics: each topic succeeds or fails on its own (W05).

A reply without an error means that the topic can be written to, so the request's timeout is not used. From version 5 on the reply
lists the settings of the topic with their sources.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.controller.topic_requests import TopicRequests
from ottla.broker.handlers.change_log import log_created
from ottla.broker.metadata.local_metadata import LocalMetadata
from ottla.broker.network.context import RequestContext
from ottla.cluster.image import TopicImage
from ottla.cluster.requests import NewTopic
from ottla.cluster.settings import BrokerSettings, TopicSettings, describe_topic
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_STRICT_FROM: Final = 6
"""The version from which on a topic above the quota of mutations is refused (KIP-599)."""


async def handle(
    topic_requests: TopicRequests, metadata: LocalMetadata, request: CreateTopicsRequest, context: RequestContext
) -> CreateTopicsResponse:
    asked = [_new_topic(topic) for topic in request.topics]
    charge = context.meter.charge(context.version >= _STRICT_FROM) if context.meter is not None else None
    outcomes = await topic_requests.create(asked, validate_only=request.validate_only, forward=False, charge=charge)
    if not request.validate_only:
        log_created(context, outcomes)
    results: dict[str, CreatableTopicResult] = {}
    for topic, outcome in zip(request.topics, outcomes, strict=True):
        # A name that appears twice in the request gets one result.
        results[topic.name] = _result(topic.name, outcome, metadata.settings, tell_config=context.version >= 5)
    return CreateTopicsResponse(topics=list(results.values()))


def _new_topic(topic: CreatableTopic) -> NewTopic:
    return NewTopic(
        topic.name,
        topic.num_partitions,
        topic.replication_factor,
        [(assignment.partition_index, tuple(assignment.broker_ids)) for assignment in topic.assignments],
        {config.name: config.value for config in topic.configs},
    )


def _result(name: str, outcome: TopicImage | KafkaError, settings: BrokerSettings, *, tell_config: bool) -> CreatableTopicResult:
    if isinstance(outcome, KafkaError):
        return CreatableTopicResult(name=name, error_code=outcome.code, error_message=outcome.detail)
    result = CreatableTopicResult(
        name=name,
        topic_id=outcome.topic_id,
        error_code=ErrorCode.NONE,
        num_partitions=len(outcome.partitions),
        replication_factor=len(outcome.partitions[0].replicas),
    )
    if tell_config:
        result.configs = [
            CreatableTopicConfigs(
                name=setting.name,
                value=setting.value,
                read_only=setting.read_only,
                config_source=setting.source,
                is_sensitive=setting.sensitive,
            )
            for setting in describe_topic(settings, TopicSettings.resolve(settings, outcome.config), None)
        ]
    return result


def refuse(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    return CreateTopicsResponse(topics=[_refused(topic.name, error) for topic in request.topics])


def _refused(name: str, error: KafkaError) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=error.code, error_message=error.detail)
