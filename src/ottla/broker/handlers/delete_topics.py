"""DeleteTopics: by name, and from version 6 on also by id. A reply without an error means that the topic is deleted.

Clients before version 3 do not know TOPIC_DELETION_DISABLED and get INVALID_REQUEST.
"""

from __future__ import annotations

from typing import Final

from ottla.broker.controller.topic_requests import TopicRequests
from ottla.broker.handlers.change_log import log_change
from ottla.broker.network.context import RequestContext
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from ottla.types import ZERO_UUID

_STRICT_FROM: Final = 5
"""The version from which on a topic above the quota of mutations is refused (KIP-599)."""


async def handle(topic_requests: TopicRequests, request: DeleteTopicsRequest, context: RequestContext) -> DeleteTopicsResponse:
    results: list[DeletableTopicResult] = []
    asked: list[tuple[str | bytes, DeletableTopicResult]] = []
    for state in _states(request):
        result = DeletableTopicResult(name=state.name, topic_id=state.topic_id)
        results.append(result)
        by_id = state.topic_id != ZERO_UUID
        if (state.name is not None) == by_id:
            result.error_code = ErrorCode.INVALID_REQUEST
            result.error_message = "a topic must be named by its name or by its id, not by both or neither"
        else:
            asked.append((bytes(state.topic_id) if by_id else state.name or "", result))
    charge = context.meter.charge(context.version >= _STRICT_FROM) if context.meter is not None else None
    outcomes = await topic_requests.delete([name_or_id for name_or_id, _ in asked], charge)
    for (_, result), outcome in zip(asked, outcomes, strict=True):
        if isinstance(outcome, KafkaError):
            disabled_unknown = outcome.code is ErrorCode.TOPIC_DELETION_DISABLED and context.version < 3
            result.error_code = ErrorCode.INVALID_REQUEST if disabled_unknown else outcome.code
            result.error_message = outcome.detail
        else:
            result.name, result.topic_id = outcome.name, outcome.topic_id
            log_change(context, f"deleted topic {outcome.name}")
    return DeleteTopicsResponse(responses=results)


def _states(request: DeleteTopicsRequest) -> list[DeleteTopicState]:
    return request.topics or [DeleteTopicState(name=name) for name in request.topic_names]


def refuse(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    return DeleteTopicsResponse(
        responses=[
            DeletableTopicResult(name=state.name, topic_id=state.topic_id, error_code=error.code, error_message=error.detail)
            for state in _states(request)
        ]
    )
