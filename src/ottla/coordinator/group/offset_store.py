"""The committed offsets of the groups of one shard.

Owns how offsets are written and read, and which of them have expired (G08, G09). Never checks who may commit: the group does.
Compiled.

1. Changed by `replay` and `put` only, with records of the log.
2. A partition without a committed offset has offset -1, without an error.
3. Offsets of a transaction are pending until its marker. Of two commits the later one in the log counts, whether or not it is
   part of a transaction.
4. An offset expires `offsets.retention.minutes` after a time that the kind of group determines.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Final

from ottla.coordinator.group.committed_offset import (
    Commits,
    CommittedOffset,
    offset_commit_value,
    offset_key,
    offset_key_prefix,
)
from ottla.coordinator.shard import CoordinatorRecord
from ottla.errors import ErrorCode
from ottla.protocol.internal.group_records import (
    OFFSET_COMMIT_WITH_EXPIRY_VERSION,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_value,
)
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from ottla.protocol.messages.offset_fetch import (
    OffsetFetchRequestTopics,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from ottla.types import NO_LEADER_EPOCH, NO_OFFSET, NO_PRODUCER_ID, NO_TIMESTAMP, ZERO_UUID

if TYPE_CHECKING:
    from ottla.coordinator.group.committed_offset import CommittedOffset
    from ottla.coordinator.group.group import Group, Topics

_SERVER_RETENTION: Final = -1
_TIMESTAMP_MAX: Final = 2**63 - 1
_SHARED_RESULTS_MAX: Final = 1024
_SHARED_RESULTS: Final = [OffsetCommitResponsePartition(partition_index=number) for number in range(_SHARED_RESULTS_MAX)]
"""Results of partitions without an error, shared by all commits. Nothing changes them."""


Place = tuple[str, str, int]
"""Group, topic, partition."""


class _Commit:
    """The records of one request, and the offsets in them."""

    __slots__ = ("_group_id", "_key_prefix", "_metadata_bytes_max", "_topic", "_topic_id", "offsets", "records")

    def __init__(self, group_id: str, metadata_bytes_max: int) -> None:
        self._group_id = group_id
        self._metadata_bytes_max = metadata_bytes_max
        self._topic = ""
        self._topic_id = ZERO_UUID
        self._key_prefix = b""
        self.records: list[CoordinatorRecord] = []
        self.offsets: list[tuple[str, int, CommittedOffset]] = []

    def begin(self, topic: str, topics: Topics) -> None:
        """What is added from now on belongs to this topic."""
        self._topic = topic
        self._topic_id = _topic_id(topics, topic)
        self._key_prefix = offset_key_prefix(self._group_id, topic)

    def add(self, partition: int, offset: int, leader_epoch: int, metadata: str, commit_ms: int, expire_ms: int) -> bool:
        """False: the metadata is too large, and nothing is added."""
        if len(metadata) > self._metadata_bytes_max:
            return False
        if expire_ms == NO_TIMESTAMP:
            topic_id = self._topic_id
            value = offset_commit_value(offset, leader_epoch, metadata, commit_ms, topic_id)
            committed = CommittedOffset(offset, leader_epoch, metadata, commit_ms, NO_TIMESTAMP, topic_id)
        else:
            # The record version with an expiry has no leader epoch and no topic id.
            committed = CommittedOffset(offset, NO_LEADER_EPOCH, metadata, commit_ms, expire_ms)
            expiring = OffsetCommitValue(offset=offset, metadata=metadata, commit_timestamp=commit_ms, expire_timestamp=expire_ms)
            value = encode_value(expiring, OFFSET_COMMIT_WITH_EXPIRY_VERSION)
        self.records.append(CoordinatorRecord(offset_key(self._key_prefix, partition), value))
        self.offsets.append((self._topic, partition, committed))
        return True


class OffsetStore:
    __slots__ = ("_by_group", "_order", "pending")

    def __init__(self) -> None:
        self._by_group: dict[str, dict[str, dict[int, CommittedOffset]]] = {}
        self._order = 0
        self.pending = PendingOffsets()

    def count(self) -> int:
        """The number of committed offsets."""
        return sum([len(partitions) for topics in self._by_group.values() for partitions in topics.values()])

    # Read

    def get(self, group_id: str, topic: str, partition: int) -> CommittedOffset | None:
        topics = self._by_group.get(group_id)
        if topics is None:
            return None
        partitions = topics.get(topic)
        return None if partitions is None else partitions.get(partition)

    def has_pending(self, group_id: str, topic: str, partition: int) -> bool:
        """Whether an open transaction has a pending commit of the partition."""
        return self.pending.has((group_id, topic, partition))

    def has_open_transaction(self, group_id: str) -> bool:
        return self.pending.has_open(group_id)

    def of_group(self, group_id: str) -> Iterator[tuple[str, int, CommittedOffset]]:
        for topic, partitions in self._by_group.get(group_id, {}).items():
            for partition, committed in partitions.items():
                yield topic, partition, committed

    def fetch(
        self, group_id: str, asked: Iterable[OffsetFetchRequestTopics], topics: Topics, *, require_stable: bool
    ) -> list[OffsetFetchResponseTopics]:
        found = self._by_group.get(group_id, {})
        answers = []
        for topic in asked:
            committed = found.get(topic.name, {})
            is_current = _same_topic(topics, topic.name)
            answers.append(
                OffsetFetchResponseTopics(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partitions=[
                        self._answer(group_id, topic.name, index, committed.get(index), is_current, require_stable)
                        for index in topic.partition_indexes
                    ],
                )
            )
        return answers

    def fetch_all(self, group_id: str, topics: Topics, *, require_stable: bool) -> list[OffsetFetchResponseTopics]:
        answers = []
        for name, partitions in self._by_group.get(group_id, {}).items():
            known = topics.topics.get(name)
            is_current = _same_topic(topics, name)
            current = [
                self._answer(group_id, name, index, committed, is_current, require_stable)
                for index, committed in partitions.items()
                if is_current(committed)
            ]
            if current:
                answers.append(
                    OffsetFetchResponseTopics(
                        name=name, topic_id=known.topic_id if known is not None else ZERO_UUID, partitions=current
                    )
                )
        return answers

    def _answer(
        self,
        group_id: str,
        topic: str,
        partition: int,
        committed: CommittedOffset | None,
        is_current: Callable[[CommittedOffset], bool],
        require_stable: bool,
    ) -> OffsetFetchResponsePartitions:
        if require_stable and self.has_pending(group_id, topic, partition):
            return OffsetFetchResponsePartitions(
                partition_index=partition,
                committed_offset=NO_OFFSET,
                metadata="",
                error_code=ErrorCode.UNSTABLE_OFFSET_COMMIT,
            )
        if committed is None or not is_current(committed):
            return OffsetFetchResponsePartitions(partition_index=partition, committed_offset=NO_OFFSET, metadata="")
        return OffsetFetchResponsePartitions(
            partition_index=partition,
            committed_offset=committed.offset,
            committed_leader_epoch=committed.leader_epoch,
            metadata=committed.metadata,
        )

    # Decide

    def commit(
        self, request: OffsetCommitRequest, topics: Topics, metadata_bytes_max: int, wall_ms: int
    ) -> tuple[list[CoordinatorRecord], Commits, OffsetCommitResponse]:
        written = _Commit(request.group_id, metadata_bytes_max)
        results: list[OffsetCommitResponseTopic] = []
        retention_ms = request.retention_time_ms
        expire_ms = NO_TIMESTAMP if retention_ms == _SERVER_RETENTION else min(wall_ms + retention_ms, _TIMESTAMP_MAX)
        for topic in request.topics:
            name: str = topic.name
            written.begin(name, topics)
            partitions: list[OffsetCommitResponsePartition] = []
            for partition in topic.partitions:
                index: int = partition.partition_index
                at_ms = wall_ms if partition.commit_timestamp == NO_TIMESTAMP else partition.commit_timestamp
                metadata = partition.committed_metadata or ""
                offset, leader_epoch = partition.committed_offset, partition.committed_leader_epoch
                if not written.add(index, offset, leader_epoch, metadata, at_ms, expire_ms):
                    partitions.append(
                        OffsetCommitResponsePartition(partition_index=index, error_code=ErrorCode.OFFSET_METADATA_TOO_LARGE)
                    )
                elif 0 <= index < _SHARED_RESULTS_MAX:
                    partitions.append(_SHARED_RESULTS[index])
                else:
                    partitions.append(OffsetCommitResponsePartition(partition_index=index))
            results.append(OffsetCommitResponseTopic(name=name, topic_id=topic.topic_id, partitions=partitions))
        return written.records, Commits(request.group_id, written.offsets), OffsetCommitResponse(topics=results)

    def commit_in_transaction(
        self, request: TxnOffsetCommitRequest, topics: Topics, metadata_bytes_max: int, wall_ms: int
    ) -> tuple[list[CoordinatorRecord], Commits, TxnOffsetCommitResponse]:
        written = _Commit(request.group_id, metadata_bytes_max)
        results: list[TxnOffsetCommitResponseTopic] = []
        for topic in request.topics:
            name: str = topic.name
            written.begin(name, topics)
            partitions: list[TxnOffsetCommitResponsePartition] = []
            for partition in topic.partitions:
                index: int = partition.partition_index
                metadata = partition.committed_metadata or ""
                offset, leader_epoch = partition.committed_offset, partition.committed_leader_epoch
                fits = written.add(index, offset, leader_epoch, metadata, wall_ms, NO_TIMESTAMP)
                error = ErrorCode.NONE if fits else ErrorCode.OFFSET_METADATA_TOO_LARGE
                partitions.append(TxnOffsetCommitResponsePartition(partition_index=index, error_code=error))
            results.append(TxnOffsetCommitResponseTopic(name=name, partitions=partitions))
        return written.records, Commits(request.group_id, written.offsets), TxnOffsetCommitResponse(topics=results)

    def delete(self, request: OffsetDeleteRequest, group: Group) -> tuple[list[CoordinatorRecord], OffsetDeleteResponse]:
        records: list[CoordinatorRecord] = []
        answers: list[OffsetDeleteResponseTopic] = []
        for topic in request.topics:
            subscribed = group.is_subscribed_to(topic.name)
            error = ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if subscribed else ErrorCode.NONE
            partitions: list[OffsetDeleteResponsePartition] = []
            for partition in topic.partitions:
                index = partition.partition_index
                partitions.append(OffsetDeleteResponsePartition(partition_index=index, error_code=error))
                if not subscribed and (
                    self.get(group.group_id, topic.name, index) is not None or self.has_pending(group.group_id, topic.name, index)
                ):
                    records.append(tombstone(group.group_id, topic.name, index))
            answers.append(OffsetDeleteResponseTopic(name=topic.name, partitions=partitions))
        return records, OffsetDeleteResponse(topics=answers)

    def tombstones(self, group_id: str) -> list[CoordinatorRecord]:
        """Delete all offsets of a group, pending ones included."""
        places = {(group_id, topic, partition): None for topic, partition, _ in self.of_group(group_id)}
        places.update(dict.fromkeys(self.pending.of_group(group_id)))
        return [tombstone(*place) for place in places]

    def tombstones_of_topics(self, names: frozenset[str]) -> list[CoordinatorRecord]:
        """Delete the offsets of deleted topics."""
        return [
            tombstone(group_id, topic, partition)
            for group_id, topics in self._by_group.items()
            for topic in sorted(names.intersection(topics))
            for partition in topics[topic]
        ]

    def expire(self, group: Group, wall_ms: int, retention_ms: int) -> tuple[list[CoordinatorRecord], bool]:
        """Tombstones of the group's expired offsets, and whether the group has no others."""
        records: list[CoordinatorRecord] = []
        none_left = True
        group_id = group.group_id
        for topic, partition, committed in self.of_group(group_id):
            base_ms = group.offset_base_ms(committed)
            if base_ms is None or group.is_subscribed_to(topic):
                none_left = False
                continue
            if committed.expire_timestamp_ms != NO_TIMESTAMP:
                expired = wall_ms >= committed.expire_timestamp_ms
            else:
                expired = wall_ms - base_ms >= retention_ms
            if expired and not self.has_pending(group_id, topic, partition):
                records.append(tombstone(group_id, topic, partition))
            else:
                none_left = False
        return records, none_left and not self.has_open_transaction(group_id)

    # Replay

    def replay(self, key: OffsetCommitKey, value: OffsetCommitValue | None, producer_id: int = NO_PRODUCER_ID) -> None:
        if value is not None:
            committed = CommittedOffset(
                value.offset,
                value.leader_epoch,
                value.metadata,
                value.commit_timestamp,
                value.expire_timestamp,
                value.topic_id,
            )
            self.put(Commits(key.group, [(key.topic, key.partition, committed)]), producer_id)
            return
        self.pending.remove((key.group, key.topic, key.partition))
        topics = self._by_group.get(key.group)
        partitions_left = topics.get(key.topic) if topics is not None else None
        if topics is None or partitions_left is None:
            return
        partitions_left.pop(key.partition, None)
        if not partitions_left:
            del topics[key.topic]
            if not topics:
                del self._by_group[key.group]

    def put(self, commits: Commits, producer_id: int) -> None:
        """Take in offsets whose records are in the log."""
        group_id, offsets = commits.group, commits.offsets
        order = self._order
        self._order += len(offsets)
        if producer_id != NO_PRODUCER_ID:
            for topic, partition, committed in offsets:
                order += 1
                committed.order = order
                self.pending.put(producer_id, (group_id, topic, partition), committed)
            return
        topics = self._by_group.get(group_id)
        if topics is None:
            topics = self._by_group[group_id] = {}
        for topic, partition, committed in offsets:
            order += 1
            committed.order = order
            partitions = topics.get(topic)
            if partitions is None:
                partitions = topics[topic] = {}
            partitions[partition] = committed

    def end_transaction(self, producer_id: int, *, commit: bool) -> None:
        """The marker of a producer's transaction is in the log: its pending offsets are committed, or dropped."""
        ended = self.pending.take(producer_id)
        if not commit:
            return
        for (group_id, topic, partition), committed in ended.items():
            present = self.get(group_id, topic, partition)
            if present is None or committed.order > present.order:
                self._by_group.setdefault(group_id, {}).setdefault(topic, {})[partition] = committed


def tombstone(group_id: str, topic: str, partition: int) -> CoordinatorRecord:
    return CoordinatorRecord(offset_key(offset_key_prefix(group_id, topic), partition), None)


def _topic_id(topics: Topics, name: str) -> bytes:
    known = topics.topics.get(name)
    return known.topic_id if known is not None else ZERO_UUID


def _same_topic(topics: Topics, name: str) -> Callable[[CommittedOffset], bool]:
    """Whether an offset belongs to the current topic of the name, not to a deleted one."""
    known = topics.topics.get(name)
    if known is None:
        return lambda committed: True
    topic_id = known.topic_id
    return lambda committed: committed.topic_id in (topic_id, ZERO_UUID)


class PendingOffsets:
    """Offsets committed in transactions that are still open (T08, T09).

    1. A pending offset is not visible. A fetch that requires stable offsets gets UNSTABLE_OFFSET_COMMIT.
    2. The marker of a transaction ends the pending state of all offsets of its producer.
    """

    __slots__ = ("_by_producer", "_open")

    def __init__(self) -> None:
        self._by_producer: dict[int, dict[Place, CommittedOffset]] = {}
        self._open: dict[str, dict[int, None]] = {}
        """Group -> producers with an open transaction that committed offsets of it."""

    def put(self, producer_id: int, place: Place, committed: CommittedOffset) -> None:
        self._by_producer.setdefault(producer_id, {})[place] = committed
        self._open.setdefault(place[0], {})[producer_id] = None

    def remove(self, place: Place) -> None:
        """The offset was deleted. Its transaction stays open and may commit it again."""
        for producer_id in self._open.get(place[0], ()):
            self._by_producer[producer_id].pop(place, None)

    def has(self, place: Place) -> bool:
        open_producers = self._open.get(place[0])
        return open_producers is not None and any(place in self._by_producer[producer_id] for producer_id in open_producers)

    def has_open(self, group_id: str) -> bool:
        return group_id in self._open

    def of_group(self, group_id: str) -> Iterator[Place]:
        for producer_id in self._open.get(group_id, ()):
            for place in self._by_producer[producer_id]:
                if place[0] == group_id:
                    yield place

    def take(self, producer_id: int) -> dict[Place, CommittedOffset]:
        """Remove and return what a producer has pending: its transaction ended."""
        pending = self._by_producer.pop(producer_id, {})
        for group_id in [group_id for group_id, producers in self._open.items() if producer_id in producers]:
            producers = self._open[group_id]
            del producers[producer_id]
            if not producers:
                del self._open[group_id]
        return pending

    def facts(self) -> dict[int, dict[Place, CommittedOffset]]:
        """All pending offsets, for comparison in tests."""
        return {producer_id: dict(places) for producer_id, places in self._by_producer.items()}
