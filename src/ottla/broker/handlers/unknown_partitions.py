"""Partitions that do not exist, in requests about offsets of groups: they are refused one by one, the others go on.

Shared by offset_commit, offset_delete and txn_offset_commit, whose messages have the same shape.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import copy
from typing import Any, Protocol, TypeVar

from ottla.cluster.image import ClusterImage
from ottla.errors import ErrorCode


class _Topic(Protocol):
    name: str
    partitions: list[Any]
    """Each has a `partition_index`."""


class _Answers(Protocol):
    topics: list[Any]


AskedT = TypeVar("AskedT", bound=_Topic)
AnswerT = TypeVar("AnswerT", bound=_Topic)
ResponseT = TypeVar("ResponseT", bound=_Answers)


def refuse_unknown(
    topics: list[AskedT], image: ClusterImage, refused: Callable[[AskedT, list[int], ErrorCode], AnswerT]
) -> tuple[list[AskedT], list[AnswerT]]:
    """What of the request goes on, and the answers to the rest."""
    kept: list[AskedT] = []
    answers: list[AnswerT] = []
    for topic in topics:
        known = image.topics.get(topic.name)
        count = len(known.partitions) if known is not None else 0
        missing = [each.partition_index for each in topic.partitions if not 0 <= each.partition_index < count]
        if missing:
            answers.append(refused(topic, missing, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
            # The request stays as it came: should all of it be refused later, the answer names all of it.
            topic = copy(topic)
            topic.partitions = [each for each in topic.partitions if 0 <= each.partition_index < count]
        if topic.partitions:
            kept.append(topic)
    return kept, answers


def merged(response: ResponseT, refused: list[AnswerT]) -> ResponseT:
    """One answer for each topic."""
    by_name = {topic.name: topic for topic in response.topics}
    for topic in refused:
        if topic.name and topic.name in by_name:
            by_name[topic.name].partitions += topic.partitions
        else:
            response.topics.append(topic)
    return response
