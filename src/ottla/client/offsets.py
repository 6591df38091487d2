"""Offset requests over the blocking client: log start and end, offsets by timestamp, committed offsets of groups.

Groups partitions by their leaders. Keeps no state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from ottla.client.blocking import Client
from ottla.client.transactions import CommittedOffset, GroupOffsets, offsets_by_topic
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from ottla.types import TimestampAndOffset, TopicPartition

EARLIEST: Final = -2
LATEST: Final = -1
_OFFSET_COMMIT_VERSION_MAX = 9
_OFFSET_FETCH_VERSION_MAX = 9
"""From version 10 on topics are named by id."""
_LIST_OFFSETS_VERSION_MAX = 9


def list_offsets(
    client: Client, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False, timeout_s: float = 0
) -> dict[TopicPartition, TimestampAndOffset]:
    """For each partition the first record at or after a timestamp, or the log end (LATEST) or start (EARLIEST).

    Nothing that late: offset -1. With `read_committed` LATEST is the last stable offset.
    """
    found: dict[TopicPartition, TimestampAndOffset] = {}

    def attempt(until: float) -> None:
        by_leader: dict[int, list[TopicPartition]] = {}
        for where in wanted.keys() - found.keys():
            by_leader.setdefault(client.leader(where.topic, where.partition, until), []).append(where)
        for node_id, partitions in sorted(by_leader.items()):
            request = _list_request(sorted(partitions), wanted, read_committed)
            answer = client.ask_node(node_id, request, until, max_version=_LIST_OFFSETS_VERSION_MAX)
            for topic in answer.topics:
                for part in topic.partitions:
                    where = TopicPartition(topic.name, part.partition_index)
                    found[where] = TimestampAndOffset(part.timestamp, part.offset)

    def renew() -> None:
        for where in wanted:
            client.forget(where.topic)

    client.persist(attempt, timeout_s, renew)
    return found


def _list_request(
    partitions: Iterable[TopicPartition], wanted: Mapping[TopicPartition, int], read_committed: bool
) -> ListOffsetsRequest:
    by_topic: dict[str, list[ListOffsetsPartition]] = {}
    for where in partitions:
        entry = ListOffsetsPartition(partition_index=where.partition, timestamp=wanted[where])
        by_topic.setdefault(where.topic, []).append(entry)
    topics = [ListOffsetsTopic(name=name, partitions=parts) for name, parts in by_topic.items()]
    return ListOffsetsRequest(replica_id=-1, isolation_level=1 if read_committed else 0, topics=topics)


def committed_offsets(
    client: Client,
    group_id: str,
    partitions: Iterable[TopicPartition] | None = None,
    *,
    require_stable: bool = False,
    timeout_s: float = 0,
) -> dict[TopicPartition, CommittedOffset]:
    """The committed offsets of a group, all or of some partitions. A partition without one has no entry.

    `require_stable` waits for transactions that hold offsets of the group open.
    """
    by_topic: dict[str, list[int]] = {}
    for topic, partition in partitions or ():
        by_topic.setdefault(topic, []).append(partition)
    if not by_topic and partitions is not None:
        return {}

    def request(version: int) -> OffsetFetchRequest:
        stable = require_stable and version >= 7
        if version < 8:
            old = [OffsetFetchRequestTopic(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()]
            return OffsetFetchRequest(group_id=group_id, topics=old or None, require_stable=stable)
        new = [OffsetFetchRequestTopics(name=name, partition_indexes=indexes) for name, indexes in by_topic.items()]
        return OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group_id, topics=new or None)], require_stable=stable)

    answer = client.call_coordinator(
        group_id, "group", request, api="offset_fetch", max_version=_OFFSET_FETCH_VERSION_MAX, timeout_s=timeout_s
    )
    topics: list[Any] = answer.groups[0].topics if answer.groups else answer.topics
    return {
        TopicPartition(topic.name, part.partition_index): CommittedOffset(
            part.committed_offset, part.metadata or "", part.committed_leader_epoch
        )
        for topic in topics
        for part in topic.partitions
        if part.committed_offset >= 0
    }


def commit_offsets(client: Client, group_id: str, offsets: GroupOffsets, *, timeout_s: float = 0) -> None:
    """Commit offsets of a group without members, as admin tools do."""
    by_topic = offsets_by_topic(offsets, OffsetCommitRequestPartition)
    if not by_topic:
        return
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=parts) for topic, parts in by_topic.items()],
    )
    client.call_coordinator(group_id, "group", request, max_version=_OFFSET_COMMIT_VERSION_MAX, timeout_s=timeout_s)
