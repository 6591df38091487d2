"""The groups of a cluster: each broker lists those that it coordinates, and describes them with their committed offsets.

Committed offsets of many groups come in one response (OffsetFetch 8 and later). Older brokers get one request per group, all in
flight at once. Members are asked for only where the list does not say that there are none.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Sequence
from typing import Any, Final, TypeVar

from ottla.client.brokers import Ask, Brokers
from ottla.coordinator.group.consumer_protocol import read_assignment
from ottla.errors import ErrorCode, MalformedInput, error_name
from ottla.exporter.filters import NameFilter
from ottla.exporter.reading import Group, Member
from ottla.protocol.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from ottla.protocol.messages.describe_groups import DescribeGroupsRequest
from ottla.protocol.messages.list_groups import ListGroupsRequest
from ottla.protocol.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup

T = TypeVar("T")

GROUPS_PER_REQUEST: Final = 250
_MANY_GROUPS_FROM, _BY_NAME_UNTIL, _ALL_TOPICS_FROM = 8, 9, 2
_CLASSIC, _CONSUMER = "classic", "consumer"
_WITHOUT_OFFSETS: Final = frozenset({"share"})
_NO_SUCH_GROUP: Final = frozenset({ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION})


async def read_groups(brokers: Brokers, broker_ids: Collection[int], wanted: NameFilter, problems: list[str]) -> list[Group]:
    lists = await brokers.ask_all((Ask(each, "list_groups", ListGroupsRequest()) for each in broker_ids), problems)
    by_coordinator = {ask.broker_id: _listed(ask.broker_id, answer, wanted, problems) for ask, answer in lists}
    await asyncio.gather(*(_describe(brokers, each, groups, problems) for each, groups in by_coordinator.items()))
    return sorted((group for groups in by_coordinator.values() for group in groups), key=lambda group: group.name)


def _listed(broker_id: int, answer: Any, wanted: NameFilter, problems: list[str]) -> list[Group]:
    if answer.error_code:
        problems.append(f"groups of broker {broker_id}: {error_name(answer.error_code)}")
    return [
        Group(each.group_id, each.group_type.lower(), each.protocol_type, each.group_state, broker_id)
        for each in answer.groups
        if wanted(each.group_id)
    ]


async def _describe(brokers: Brokers, broker_id: int, groups: list[Group], problems: list[str]) -> None:
    by_name = {group.name: group for group in groups}
    reading = [group for group in groups if group.kind not in _WITHOUT_OFFSETS]
    await asyncio.gather(
        _read_offsets(brokers, broker_id, by_name, [group.name for group in reading], problems),
        _read_members(brokers, broker_id, by_name, problems),
    )


# Committed offsets


async def _read_offsets(
    brokers: Brokers, broker_id: int, groups: dict[str, Group], names: list[str], problems: list[str]
) -> None:
    def request_of(chunk: Sequence[str]) -> OffsetFetchRequest:
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=name, topics=None) for name in chunk])

    if not names:
        return
    if await brokers.supports(broker_id, "offset_fetch", _MANY_GROUPS_FROM):
        versions = (_MANY_GROUPS_FROM, _BY_NAME_UNTIL)
        asks = [Ask(broker_id, "offset_fetch", request_of(chunk), versions) for chunk in chunks(names, GROUPS_PER_REQUEST)]
        for _, answer in await brokers.ask_all(asks, problems):
            for group in answer.groups:
                _fill_offsets(groups[group.group_id], group, problems)
        return
    old = (_ALL_TOPICS_FROM, _MANY_GROUPS_FROM - 1)
    asks = [Ask(broker_id, "offset_fetch", OffsetFetchRequest(group_id=name, topics=None), old) for name in names]
    for ask, answer in await brokers.ask_all(asks, problems):
        assert isinstance(ask.request, OffsetFetchRequest)
        _fill_offsets(groups[ask.request.group_id], answer, problems)


def _fill_offsets(group: Group, answer: Any, problems: list[str]) -> None:
    if answer.error_code:
        # The group may have been deleted since it was listed.
        if answer.error_code not in _NO_SUCH_GROUP:
            problems.append(f"offsets of group {group.name}: {error_name(answer.error_code)}")
        return
    group.committed = {
        (topic.name, each.partition_index): each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
        if not each.error_code and each.committed_offset >= 0
    }


# Members


async def _read_members(brokers: Brokers, broker_id: int, groups: dict[str, Group], problems: list[str]) -> None:
    classic, consumer = [], []
    for group in groups.values():
        if group.state == "Empty":
            group.members = []
        elif group.kind in (_CLASSIC, ""):
            classic.append(group.name)
        elif group.kind == _CONSUMER:
            consumer.append(group.name)
    asks = [
        Ask(broker_id, "describe_groups", DescribeGroupsRequest(groups=chunk)) for chunk in chunks(classic, GROUPS_PER_REQUEST)
    ]
    asks += [
        Ask(broker_id, "consumer_group_describe", ConsumerGroupDescribeRequest(group_ids=chunk))
        for chunk in chunks(consumer, GROUPS_PER_REQUEST)
    ]
    for ask, answer in await brokers.ask_all(asks, problems):
        for described in answer.groups:
            group = groups[described.group_id]
            if described.error_code:
                if described.error_code not in _NO_SUCH_GROUP:
                    problems.append(f"group {group.name}: {error_name(described.error_code)}")
            elif ask.api_name == "describe_groups":
                _fill_classic(group, described)
            else:
                _fill_consumer(group, described)


def _fill_classic(group: Group, described: Any) -> None:
    group.state, group.assignor, group.protocol_type = described.group_state, described.protocol_data, described.protocol_type
    group.members = [
        Member(each.member_id, each.client_id, _host(each.client_host), _classic_assignment(group, each.member_assignment))
        for each in described.members
    ]


def _classic_assignment(group: Group, data: Any) -> dict[str, list[int]]:
    """Only consumers have an assignment that is known here; those of Connect and others are their own."""
    if group.protocol_type != _CONSUMER or not data:
        return {}
    try:
        return {each.topic: each.partitions for each in read_assignment(data).assigned_partitions}
    except MalformedInput:
        return {}


def _fill_consumer(group: Group, described: Any) -> None:
    group.state, group.assignor, group.epoch = described.group_state, described.assignor_name, described.group_epoch
    group.members = [
        Member(
            each.member_id,
            each.client_id,
            _host(each.client_host),
            {topic.topic_name: topic.partitions for topic in each.assignment.topic_partitions},
        )
        for each in described.members
    ]


def _host(host: str) -> str:
    """Java prints an address without a host name behind a slash."""
    return host.removeprefix("/")


def chunks(names: Sequence[T], size: int) -> Iterator[list[T]]:
    for start in range(0, len(names), size):
        yield list(names[start : start + size])
