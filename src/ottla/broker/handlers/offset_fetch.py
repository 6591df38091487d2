"""OffsetFetch: the committed offsets of groups (F41).

A group or partition without a committed offset gets offset -1 without an error (G08). Without a list of topics all are returned.
From version 8 on a request has several groups, each with an error of its own; before, the error is that of the reply, and in
version 1, which has no such field, that of each partition. From version 10 on topics are named by id. Version 0, which read from
ZooKeeper, is not served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, Final

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.network.context import RequestContext
from ottla.broker.replicas.partitions import Partitions
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from ottla.types import NO_OFFSET

_GROUP_ERROR_FROM: Final = 2
_GROUPS_FROM: Final = 8
_TOPIC_IDS_FROM: Final = 10


def handle(
    groups: GroupCoordinators, partitions: Partitions, request: OffsetFetchRequest, context: RequestContext
) -> OffsetFetchResponse | Awaitable[OffsetFetchResponse]:
    asked = request.groups if context.version >= _GROUPS_FROM else [_only_group(request)]
    found = [_fetch(groups, partitions, group, request.require_stable, context.version) for group in asked]
    if any(isinstance(group, asyncio.Future) for group in found):
        return _after_commit(found, request, context.version)
    return _response(found, request, context.version)


async def _after_commit(found: list[Any], request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    groups = [await group if isinstance(group, asyncio.Future) else group for group in found]
    return _response(groups, request, version)


def _fetch(
    groups: GroupCoordinators, partitions: Partitions, group: OffsetFetchRequestGroup, require_stable: bool, version: int
) -> Any:
    unknown: list[OffsetFetchResponseTopics] = []
    if version >= _TOPIC_IDS_FROM and group.topics is not None:
        unknown = _name_topics(partitions, group)

    def read() -> OffsetFetchResponseGroup:
        try:
            answer = shard.offset_fetch(group, require_stable=require_stable)
        except KafkaError as error:
            return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)
        if unknown:
            answer.topics += unknown
        return answer

    try:
        hosted, shard = groups.shards.find(group.group_id)
        return groups.shards.when_committed(hosted, read)
    except KafkaError as error:
        return OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code)


def _name_topics(partitions: Partitions, group: OffsetFetchRequestGroup) -> list[OffsetFetchResponseTopics]:
    """Replace topic ids by names. Returns the results of unknown ids."""
    unknown: list[OffsetFetchResponseTopics] = []
    named: list[OffsetFetchRequestTopics] = []
    for topic in group.topics or ():
        name = partitions.topic_name(topic.topic_id)
        if name is not None:
            topic.name = name
            named.append(topic)
            continue
        unknown.append(
            OffsetFetchResponseTopics(
                topic_id=topic.topic_id,
                partitions=[
                    OffsetFetchResponsePartitions(
                        partition_index=index, committed_offset=NO_OFFSET, error_code=ErrorCode.UNKNOWN_TOPIC_ID
                    )
                    for index in topic.partition_indexes
                ],
            )
        )
    group.topics = named
    return unknown


def _only_group(request: OffsetFetchRequest) -> OffsetFetchRequestGroup:
    topics = request.topics
    return OffsetFetchRequestGroup(
        group_id=request.group_id,
        topics=None
        if topics is None
        else [OffsetFetchRequestTopics(name=topic.name, partition_indexes=topic.partition_indexes) for topic in topics],
    )


def _response(groups: list[OffsetFetchResponseGroup], request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    if version >= _GROUPS_FROM:
        return OffsetFetchResponse(groups=groups)
    only = groups[0]
    if only.error_code and version < _GROUP_ERROR_FROM:
        return _failed(request, only.error_code)
    return OffsetFetchResponse(
        error_code=only.error_code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(
                        partition_index=partition.partition_index,
                        committed_offset=partition.committed_offset,
                        committed_leader_epoch=partition.committed_leader_epoch,
                        metadata=partition.metadata,
                        error_code=partition.error_code,
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in only.topics
        ],
    )


def _failed(request: OffsetFetchRequest, code: int) -> OffsetFetchResponse:
    """The error of the one group, in each requested partition."""
    return OffsetFetchResponse(
        error_code=code,
        topics=[
            OffsetFetchResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetFetchResponsePartition(partition_index=index, committed_offset=NO_OFFSET, metadata="", error_code=code)
                    for index in topic.partition_indexes
                ],
            )
            for topic in request.topics or ()
        ],
    )


def refuse(request: OffsetFetchRequest, error: KafkaError) -> OffsetFetchResponse:
    if request.groups:
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id=group.group_id, error_code=error.code) for group in request.groups]
        )
    return _failed(request, error.code)
