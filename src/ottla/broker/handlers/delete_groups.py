"""DeleteGroups: delete groups without members, with their offsets (G10)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from ottla.broker.coordinators.group_coordinators import GroupCoordinators
from ottla.broker.coordinators.reply import Reply
from ottla.broker.coordinators.shard_host import HostedShard
from ottla.broker.network.context import RequestContext
from ottla.coordinator.group.shard import GroupShard
from ottla.errors import KafkaError
from ottla.protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse


def handle(
    groups: GroupCoordinators, request: DeleteGroupsRequest, context: RequestContext
) -> DeleteGroupsResponse | Awaitable[DeleteGroupsResponse]:
    results: list[DeletableGroupResult] = []
    by_shard: dict[HostedShard[GroupShard], tuple[GroupShard, list[str]]] = {}
    for group_id in dict.fromkeys(request.groups_names):
        try:
            hosted, shard = groups.shards.find(group_id)
        except KafkaError as error:
            results.append(DeletableGroupResult(group_id=group_id, error_code=error.code))
        else:
            by_shard.setdefault(hosted, (shard, []))[1].append(group_id)
    waits: list[tuple[list[str], asyncio.Future[Any]]] = []
    for hosted, (shard, group_ids) in by_shard.items():
        reply: Reply[list[DeletableGroupResult]] = Reply()
        try:
            answer = groups.shards.reply_of(hosted, reply, shard.delete_groups(group_ids, reply, groups.shards.now()))
        except KafkaError as error:
            results += _failed(group_ids, error)
            continue
        if isinstance(answer, asyncio.Future):
            waits.append((group_ids, answer))
        else:
            results += answer
    return _after_commit(results, waits) if waits else DeleteGroupsResponse(results=results)


async def _after_commit(
    results: list[DeletableGroupResult], waits: list[tuple[list[str], asyncio.Future[Any]]]
) -> DeleteGroupsResponse:
    for group_ids, wait in waits:
        try:
            results += await wait
        except KafkaError as error:
            results += _failed(group_ids, error)
    return DeleteGroupsResponse(results=results)


def _failed(group_ids: list[str], error: KafkaError) -> list[DeletableGroupResult]:
    return [DeletableGroupResult(group_id=group_id, error_code=error.code) for group_id in group_ids]


def refuse(request: DeleteGroupsRequest, error: KafkaError) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=_failed(request.groups_names, error))
