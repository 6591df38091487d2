"""Refuse unknown partitions one by one in requests about offsets of groups, and go on with the others.

Shared by offset_commit, offset_delete and txn_offset_commit, whose messages have the same shape.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Protocol, TypeVar

from ottla.cluster.image import ClusterImage
from ottla.errors import ErrorCode, KafkaError


class _Topic(Protocol):
    name: str
    partitions: list[Any]
    """Each has a `partition_index`."""


class _Message(Protocol):
    topics: list[Any]


AskedT = TypeVar("AskedT", bound=_Topic)
AnswerT = TypeVar("AnswerT", bound=_Topic)
ResponseT = TypeVar("ResponseT", bound=_Message)


def refuse_unknown(
    request: _Message, image: ClusterImage, refused: Callable[[AskedT, list[int], ErrorCode], AnswerT]
) -> list[AnswerT]:
    """Remove unknown partitions from the request. Returns their results."""
    kept: list[AskedT] = []
    answers: list[AnswerT] = []
    for topic in request.topics:
        known = image.topics.get(topic.name)
        count = len(known.partitions) if known is not None else 0
        missing = [each.partition_index for each in topic.partitions if not 0 <= each.partition_index < count]
        if missing:
            answers.append(refused(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if topic.partitions:
            kept.append(topic)
    request.topics = kept
    return answers


def answered(
    ask: Callable[[], ResponseT | Awaitable[ResponseT]],
    unknown: list[AnswerT],
    failed: Callable[[KafkaError], ResponseT],
) -> ResponseT | Awaitable[ResponseT]:
    """The coordinator's response, or what `failed` makes of its error, with the results of the `unknown` partitions."""
    try:
        answer = ask()
    except KafkaError as error:
        return _merged(failed(error), unknown)
    if isinstance(answer, Awaitable):
        return _answered_later(answer, unknown, failed)
    return _merged(answer, unknown)


async def _answered_later(
    answer: Awaitable[ResponseT], unknown: list[AnswerT], failed: Callable[[KafkaError], ResponseT]
) -> ResponseT:
    try:
        return _merged(await answer, unknown)
    except KafkaError as error:
        return _merged(failed(error), unknown)


def _merged(response: ResponseT, unknown: list[AnswerT]) -> ResponseT:
    """Add the results of unknown partitions, one entry per topic."""
    if not unknown:
        return response
    by_name = {topic.name: topic for topic in response.topics}
    for topic in unknown:
        if topic.name and topic.name in by_name:
            by_name[topic.name].partitions += topic.partitions
        else:
            response.topics.append(topic)
    return response
