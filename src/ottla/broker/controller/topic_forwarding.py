"""Topics that a broker needs and the controller, elsewhere, has to make: the request, and what its answer means here.

Pure. The controller's broker may know of the new topic a moment before this one is told: that is LEADER_NOT_AVAILABLE, after
which every client comes again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla.cluster.controller import TopicOutcome
from ottla.cluster.image import ClusterImage
from ottla.cluster.requests import NewTopic
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

_TIMEOUT_MS: Final = 30_000


def create_request(asked: Sequence[NewTopic]) -> CreateTopicsRequest:
    return CreateTopicsRequest(topics=[_topic(new) for new in asked], timeout_ms=_TIMEOUT_MS)


def _topic(new: NewTopic) -> CreatableTopic:
    return CreatableTopic(
        name=new.name,
        num_partitions=new.partition_count,
        replication_factor=new.replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=number, broker_ids=list(brokers)) for number, brokers in new.assignments
        ],
        configs=[CreatableTopicConfig(name=name, value=value) for name, value in new.config.items()],
    )


def outcomes_of(asked: Sequence[NewTopic], response: CreateTopicsResponse, local: ClusterImage) -> list[TopicOutcome]:
    """For each topic, in order: as this broker knows it, or why it does not."""
    answers = {answer.name: answer for answer in response.topics}
    return [local.topics.get(new.name) or _error(answers.get(new.name)) for new in asked]


def _error(answer: CreatableTopicResult | None) -> KafkaError:
    if answer is None:
        return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, "the controller did not answer for it")
    code = ErrorCode(answer.error_code)
    if code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
        return KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, "the topic is there; this broker will hear of it in a moment")
    return KafkaError(code, answer.error_message or "")
