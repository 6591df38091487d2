"""One round: brokers, topics, log ends, sizes, groups and transactions of a cluster.

1. Requests to different brokers run at the same time; each broker gets few of them, for many topics or groups each.
2. Committed offsets are read before log ends, so that a lag is never negative because of the order.
3. Without metadata the round fails (`BrokerFailed`). What a single broker does not tell is missing, and is a problem or a note.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator
from dataclasses import replace
from typing import Any, Final

from ottla.client.brokers import Ask, Brokers
from ottla.errors import error_name
from ottla.exporter.filters import EVERYTHING, NameFilter
from ottla.exporter.group_reader import read_groups
from ottla.exporter.reading import BrokerNode, ClusterReading, Partition, Topic
from ottla.exporter.record_ages import RecordAges
from ottla.exporter.topic_settings import TopicSettings
from ottla.exporter.transaction_reader import HANGING_AFTER_S, read_transactions
from ottla.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from ottla.protocol.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from ottla.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic

_END, _START = -1, -2
_READ_UNCOMMITTED, _READ_COMMITTED = 0, 1
_CONSUMER: Final = -1
"""The replica id of a client."""
_BY_NAME: Final = (1, 12)
"""Versions of Metadata in which no topics at all means every topic, and the names are told."""


class ClusterReader:
    """Reads a cluster again and again. Keeps what seldom changes."""

    def __init__(
        self,
        brokers: Brokers,
        now_s: Callable[[], float],
        *,
        topics: NameFilter = EVERYTHING,
        groups: NameFilter = EVERYTHING,
        hanging_after_s: float = HANGING_AFTER_S,
    ) -> None:
        self._brokers = brokers
        self._now_s = now_s
        self._topic_filter = topics
        self._group_filter = groups
        self._hanging_after_s = hanging_after_s
        self._settings = TopicSettings(brokers, now_s)
        self._ages = RecordAges(brokers, now_s)

    async def read(self, begun: Callable[[ClusterReading], None] = lambda reading: None) -> ClusterReading:
        """A round. `begun` is called with the reading once it has brokers, topics and partitions, and nothing else."""
        reading = await self._read_metadata(None)
        begun(reading)
        ids = [broker.broker_id for broker in reading.brokers]
        groups, _, _ = await asyncio.gather(
            read_groups(self._brokers, ids, self._group_filter, reading.problems),
            self._read_sizes(reading),
            self._settings.fill(reading),
        )
        reading.groups = groups
        await self._read_offsets(reading)
        await self._ages.fill(reading)
        reading.transactions = await read_transactions(self._brokers, reading, self._now_s(), self._hanging_after_s)
        return reading

    async def read_topics(self, names: Collection[str]) -> ClusterReading:
        """Brokers, and partitions and offsets of these topics. A topic that does not exist is missing, with a problem."""
        reading = await self._read_metadata(names)
        await self._read_offsets(reading)
        return reading

    async def _read_metadata(self, names: Collection[str] | None) -> ClusterReading:
        topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
        request = MetadataRequest(topics=topics, allow_auto_topic_creation=False)
        answer = await self._brokers.call_any("metadata", request, versions=_BY_NAME)
        nodes = [BrokerNode(each.node_id, each.host, each.port, each.rack or "") for each in answer.brokers]
        self._brokers.learn({node.broker_id: (node.host, node.port) for node in nodes})
        reading = ClusterReading(self._now_s(), answer.cluster_id or "", answer.controller_id, nodes, {})
        for topic in answer.topics:
            if not self._topic_filter(topic.name):
                continue
            if topic.error_code:
                reading.problems.append(f"topic {topic.name}: {error_name(topic.error_code)}")
                continue
            partitions = {
                each.partition_index: Partition(
                    each.leader_id,
                    list(each.replica_nodes),
                    list(each.isr_nodes),
                    leader_epoch=each.leader_epoch,
                    offline=list(each.offline_replicas),
                )
                for each in sorted(topic.partitions, key=lambda each: each.partition_index)
            }
            reading.topics[topic.name] = Topic(topic.name, topic.is_internal, partitions, topic_id=bytes(topic.topic_id))
        return reading

    # Log ends

    async def _read_offsets(self, reading: ClusterReading) -> None:
        """The last stable offset is asked for last: below the end that was read before it, a transaction is open."""
        leaders = _partitions_by_leader(reading)
        asks: list[tuple[str, list[Ask]]] = [
            ("log_end", list(_offset_asks(leaders, _END, _READ_UNCOMMITTED))),
            ("log_start", list(_offset_asks(leaders, _START, _READ_UNCOMMITTED))),
            ("last_stable", list(_offset_asks(leaders, _END, _READ_COMMITTED))),
        ]
        reading.time_s = self._now_s()
        answers = await asyncio.gather(*(self._brokers.ask_all(each, reading.problems) for _, each in asks))
        for (attribute, _), answered in zip(asks, answers, strict=True):
            for _, answer in answered:
                _fill_offsets(reading, attribute, answer)

    # Sizes

    async def _read_sizes(self, reading: ClusterReading) -> None:
        asks = [Ask(node.broker_id, "describe_log_dirs", DescribeLogDirsRequest(topics=None)) for node in reading.brokers]
        sizes: dict[int, int] = {}
        by_topic: defaultdict[str, int] = defaultdict(int)
        answered = await self._brokers.ask_all(asks, reading.notes)
        for ask, answer in answered:
            if answer.error_code:
                reading.notes.append(f"log directories of broker {ask.broker_id}: {error_name(answer.error_code)}")
                continue
            sizes[ask.broker_id] = _add_sizes(reading, ask.broker_id, answer, by_topic)
        reading.brokers = [replace(node, log_bytes=sizes.get(node.broker_id)) for node in reading.brokers]
        # A broker that did not tell may hold replicas of any topic: a partial sum would look like a shrunken topic.
        if len(sizes) == len(reading.brokers):
            for name, topic in reading.topics.items():
                topic.replica_bytes = by_topic.get(name, 0)


def _add_sizes(reading: ClusterReading, broker_id: int, answer: Any, by_topic: defaultdict[str, int]) -> int:
    total = 0
    for directory in answer.results:
        for topic in directory.topics:
            size = sum(each.partition_size for each in topic.partitions)
            by_topic[topic.name] += size
            total += size
            for each in topic.partitions:
                partition = reading.partition(topic.name, each.partition_index)
                if partition is not None and partition.leader_id == broker_id and not each.is_future_key:
                    partition.log_bytes = each.partition_size
    return total


def _partitions_by_leader(reading: ClusterReading) -> dict[int, dict[str, list[int]]]:
    known = {node.broker_id for node in reading.brokers}
    leaders: dict[int, dict[str, list[int]]] = {}
    for topic in reading.topics.values():
        for index, partition in topic.partitions.items():
            if partition.leader_id in known:
                leaders.setdefault(partition.leader_id, {}).setdefault(topic.name, []).append(index)
    return leaders


def _offset_asks(leaders: dict[int, dict[str, list[int]]], timestamp: int, isolation_level: int) -> Iterator[Ask]:
    for leader_id, topics in leaders.items():
        asked = [
            ListOffsetsTopic(
                name=name, partitions=[ListOffsetsPartition(partition_index=index, timestamp=timestamp) for index in indexes]
            )
            for name, indexes in topics.items()
        ]
        request = ListOffsetsRequest(replica_id=_CONSUMER, isolation_level=isolation_level, topics=asked)
        # Version 1 has no isolation level, version 0 another layout.
        yield Ask(leader_id, "list_offsets", request, (1 if isolation_level == _READ_UNCOMMITTED else 2, 6))


def _fill_offsets(reading: ClusterReading, attribute: str, answer: Any) -> None:
    failed: dict[str, int] = {}
    for topic in answer.topics:
        for each in topic.partitions:
            partition = reading.partition(topic.name, each.partition_index)
            if each.error_code:
                failed[error_name(each.error_code)] = failed.get(error_name(each.error_code), 0) + 1
            elif partition is not None and each.offset >= 0:
                setattr(partition, attribute, each.offset)
    reading.problems += [f"offsets of {count} partitions: {name}" for name, count in failed.items()]
