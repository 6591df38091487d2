"""Offsets committed in transactions: pending until the marker, in life and after a reload alike (T08, T09)."""

from __future__ import annotations

import random
from typing import Any

import pytest

from ottla.coordinator.group.group import GroupConfig
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.shard import Now
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.messages.offset_commit import OffsetCommitRequest, OffsetCommitRequestPartition, OffsetCommitRequestTopic
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)

NOW = Now(5_000, 1_700_000_000_000)


class Log:
    """The partition of offsets: records with their producers, and markers."""

    def __init__(self) -> None:
        self.shard = GroupShard(GroupConfig(), 0)
        self.entries: list[tuple[Any, ...]] = []

    def do(self, decision: Any) -> Any:
        producer_id = decision.producer.producer_id if decision.producer is not None else -1
        for record in decision.records:
            self.entries.append((producer_id, record.key, record.value))
            if decision.message is None:
                self.shard.replay(record.key, record.value, producer_id)
        if decision.message is not None and decision.records:
            self.shard.replay_message(decision.message, producer_id)
        self.check()
        (reply,) = decision.replies
        return reply[1]

    def mark(self, producer_id: int, *, commit: bool) -> None:
        self.entries.append((producer_id, commit))
        self.shard.replay_end_transaction_marker(producer_id, commit=commit)
        self.check()

    def check(self) -> None:
        loaded = self.loaded()
        assert loaded.offsets.pending.facts() == self.shard.offsets.pending.facts()
        for group_id in set(loaded.groups.by_id) | set(self.shard.groups.by_id):
            assert sorted(loaded.offsets.of_group(group_id), key=repr) == sorted(self.shard.offsets.of_group(group_id), key=repr)

    def loaded(self) -> GroupShard:
        shard = GroupShard(GroupConfig(), 0)
        for entry in self.entries:
            if len(entry) == 2:
                shard.replay_end_transaction_marker(entry[0], commit=entry[1])
            else:
                shard.replay(entry[1], entry[2], entry[0])
        return shard

    def txn_commit(self, producer_id: int, offset: int, partition: int = 0, **fields: Any) -> Any:
        request = TxnOffsetCommitRequest(
            transactional_id="t",
            group_id=fields.pop("group_id", "g"),
            producer_id=producer_id,
            producer_epoch=0,
            topics=[
                TxnOffsetCommitRequestTopic(
                    name="in",
                    partitions=[
                        TxnOffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=offset, committed_metadata=fields.pop("metadata", "m")
                        )
                    ],
                )
            ],
            **fields,
        )
        (topic,) = self.do(self.shard.txn_offset_commit(request, 3, 1, NOW)).topics
        return topic.partitions[0].error_code

    def commit(self, offset: int, partition: int = 0) -> None:
        request = OffsetCommitRequest(
            group_id="g",
            generation_id_or_member_epoch=-1,
            retention_time_ms=-1,
            topics=[
                OffsetCommitRequestTopic(
                    name="in",
                    partitions=[
                        OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset, committed_metadata="")
                    ],
                )
            ],
        )
        self.do(self.shard.offset_commit(request, 8, 1, NOW))

    def fetch(self, partition: int = 0, *, stable: bool = False) -> Any:
        asked = OffsetFetchRequestGroup(group_id="g", topics=[OffsetFetchRequestTopics(name="in", partition_indexes=[partition])])
        (topic,) = self.shard.offset_fetch(asked, require_stable=stable).topics
        answer = topic.partitions[0]
        return answer.error_code or answer.committed_offset

    def delete(self, partition: int = 0) -> None:
        request = OffsetDeleteRequest(
            group_id="g",
            topics=[OffsetDeleteRequestTopic(name="in", partitions=[OffsetDeleteRequestPartition(partition_index=partition)])],
        )
        self.do(self.shard.offset_delete(request, 1, NOW))


def test_t09_pending_offsets_are_seen_when_they_are_committed() -> None:
    log = Log()
    log.commit(5)
    assert log.txn_commit(7, 20) == 0
    assert log.fetch() == 5
    assert log.fetch(stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    assert log.fetch(1, stable=True) == -1
    log.mark(7, commit=True)
    assert log.fetch(stable=True) == 20


def test_t09_pending_offsets_vanish_when_they_are_aborted() -> None:
    log = Log()
    log.txn_commit(7, 20)
    assert log.fetch() == -1
    log.mark(7, commit=False)
    assert log.fetch(stable=True) == -1
    log.mark(7, commit=True)
    assert log.fetch() == -1, "a marker settles its own transaction only"


def test_t09_a_transaction_settles_only_its_own() -> None:
    log = Log()
    log.txn_commit(7, 20)
    log.txn_commit(8, 30, 1)
    log.mark(8, commit=True)
    assert log.fetch(1, stable=True) == 30
    assert log.fetch(stable=True) == ErrorCode.UNSTABLE_OFFSET_COMMIT
    log.mark(7, commit=True)
    assert log.fetch(stable=True) == 20


def test_the_later_of_two_commits_counts_by_its_place_in_the_log() -> None:
    log = Log()
    log.txn_commit(7, 20)
    log.commit(25)
    log.mark(7, commit=True)
    assert log.fetch() == 25
    log.txn_commit(7, 30)
    log.mark(7, commit=True)
    assert log.fetch() == 30


def test_a_deleted_offset_is_not_brought_back_by_a_marker() -> None:
    log = Log()
    log.txn_commit(7, 20)
    log.delete()
    log.mark(7, commit=True)
    assert log.fetch() == -1


def test_a_group_with_pending_offsets_alone_is_deleted_with_them() -> None:
    log = Log()
    log.txn_commit(7, 20)
    assert [result.error_code for result in log.do(log.shard.delete_groups(["g"], 1, NOW))] == [0]
    log.mark(7, commit=True)
    assert log.fetch() == -1


def test_offsets_with_a_transaction_open_do_not_expire() -> None:
    log = Log()
    log.commit(5)
    log.txn_commit(7, 20)
    log.txn_commit(7, 20, 1)
    decision = log.shard.expire_offsets(NOW.wall_ms * 2)
    assert decision.records == []
    log.mark(7, commit=False)
    assert log.shard.expire_offsets(NOW.wall_ms * 2).records


def test_t08_who_may_commit_in_a_transaction() -> None:
    log = Log()
    with pytest.raises(KafkaError) as refused:
        log.txn_commit(7, 1, generation_id=3, member_id="m")
    assert refused.value.code == ErrorCode.ILLEGAL_GENERATION, "there is no such group"
    assert log.txn_commit(7, 1) == 0
    with pytest.raises(KafkaError) as refused:
        log.txn_commit(7, 1, generation_id=3, member_id="m")
    assert refused.value.code == ErrorCode.UNKNOWN_MEMBER_ID, "the group exists now, without members"
    assert log.txn_commit(7, 1, metadata="x" * 5000) == ErrorCode.OFFSET_METADATA_TOO_LARGE


@pytest.mark.parametrize("seed", range(20))
def test_walk(seed: int) -> None:
    """Transactions of three producers, plain commits and deletions in any order: a reload knows the same at each step."""
    log, chance = Log(), random.Random(seed)
    for offset in range(60):
        producer_id, partition = chance.randrange(3), chance.randrange(2)
        match chance.randrange(5):
            case 0:
                log.commit(offset, partition)
            case 1 | 2:
                log.txn_commit(producer_id, offset, partition)
            case 3:
                log.mark(producer_id, commit=chance.random() < 0.5)
            case 4 if "g" in log.shard.groups.by_id:
                log.delete(partition)
    for producer_id in range(3):
        log.mark(producer_id, commit=True)
    assert not log.shard.offsets.pending.facts()
    assert not log.shard.offsets.has_open_transaction("g")
