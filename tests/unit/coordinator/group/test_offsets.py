"""Commits, fetches, deletions and expiry of offsets, without a loop."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from ottla.coordinator.group.classic_group import State
from ottla.errors import ErrorCode, KafkaError
from ottla.protocol.internal.group_records import OffsetCommitKey, OffsetCommitValue, decode_record, encode_key, encode_value
from ottla.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup

MINUTE_MS = 60_000
DAY_MS = 24 * 60 * MINUTE_MS


def _delete(host: Any, topic: str, *partitions: int, group: str = "g") -> list[int]:
    request = OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=n) for n in partitions])
        ],
    )
    decision = host.shard.offset_delete(request, 10_000 + len(host.answers), host.now)
    host.do(decision)
    return [partition.error_code for partition in decision.replies[0][1].topics[0].partitions]


def _expire(host: Any) -> None:
    host.do(host.shard.expire_offsets(host.now_ms))


# Commit and fetch


def test_what_was_never_committed_is_minus_one_without_an_error(host: Any) -> None:  # G08
    for answer in (host.committed(group="unknown"), (host.commit(), host.committed(partition=2))[1]):
        assert (answer.committed_offset, answer.committed_leader_epoch, answer.metadata, answer.error_code) == (-1, -1, "", 0)


def test_offset_metadata_and_leader_epoch_come_back(host: Any) -> None:  # G08
    assert host.commit(42, metadata="säge", leader_epoch=7) == 0
    host.reload()
    answer = host.committed()
    assert (answer.committed_offset, answer.committed_leader_epoch, answer.metadata) == (42, 7, "säge")
    host.commit(43, metadata=None)
    assert host.committed().metadata == ""


def test_all_topics_of_a_group_can_be_read(host: Any) -> None:
    host.commit(1)
    host.commit(2, partition=1)
    host.commit(3, topic="u")
    answer = host.shard.offset_fetch(OffsetFetchRequestGroup(group_id="g", topics=None), require_stable=False)
    found = {(topic.name, p.partition_index): p.committed_offset for topic in answer.topics for p in topic.partitions}
    assert found == {("t", 0): 1, ("t", 1): 2, ("u", 0): 3}
    nothing = host.shard.offset_fetch(OffsetFetchRequestGroup(group_id="none", topics=None), require_stable=False)
    assert nothing.topics == []


def test_metadata_has_a_limit(new_host: Callable[..., Any]) -> None:
    host = new_host(offset_metadata_bytes_max=10)
    assert host.commit(metadata="x" * 11) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert host.log == []
    assert host.commit(metadata="x" * 10) == 0


def test_who_may_commit(host: Any) -> None:  # G02, G08
    assert host.commit(generation=3, member="m", version=8) == ErrorCode.ILLEGAL_GENERATION
    assert host.commit(generation=3, member="m", version=9) == ErrorCode.GROUP_ID_NOT_FOUND
    assert host.commit() == 0, "generation -1 makes a simple group"
    leader, follower = host.stable(2)
    assert host.commit(member=leader, generation=1) == 0
    assert host.commit(member=leader, generation=2) == ErrorCode.ILLEGAL_GENERATION
    assert host.commit(member="who", generation=1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert host.commit() == ErrorCode.UNKNOWN_MEMBER_ID, "with members only they commit"
    host.join(leader)
    assert host.commit(member=follower, generation=1) == 0, "the grace window of a rebalance"
    host.join(follower)
    assert host.group().state is State.COMPLETING_REBALANCE
    assert host.commit(member=follower, generation=1) == ErrorCode.ILLEGAL_GENERATION
    assert host.commit(member=follower, generation=2) == ErrorCode.REBALANCE_IN_PROGRESS
    host.settle([leader, follower], 2)
    host.leave((leader, None), (follower, None))
    assert host.commit() == 0
    assert host.commit(member=leader, generation=2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_offset_of_a_topic_that_was_made_anew_is_not_its_offset(host: Any, topics_made_anew: Any) -> None:
    host.commit(42)
    host.shard.groups.topics = topics_made_anew
    assert host.committed().committed_offset == -1
    answer = host.shard.offset_fetch(OffsetFetchRequestGroup(group_id="g", topics=None), require_stable=False)
    assert answer.topics == []


@pytest.fixture
def topics_made_anew(host: Any) -> Any:
    topic = SimpleNamespace(topic_id=b"another topic id", partitions=(None,))
    return SimpleNamespace(topics={"t": topic}, topic_names={topic.topic_id: "t"}, brokers={})


# Deletion


def test_an_offset_can_be_deleted_unless_the_group_reads_the_topic(host: Any) -> None:  # G10
    [member] = host.stable()
    host.commit(1, member=member, generation=1)
    host.commit(2, member=member, generation=1, topic="u")
    assert _delete(host, "t", 0) == [ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC]
    assert _delete(host, "u", 0, 1) == [0, 0]
    assert host.committed(topic="u").committed_offset == -1
    assert host.committed().committed_offset == 1
    host.leave((member, None))
    assert _delete(host, "t", 0) == [0]
    host.reload()
    assert host.committed().committed_offset == -1


def test_offsets_of_an_unknown_or_foreign_group_cannot_be_deleted(host: Any) -> None:
    with pytest.raises(KafkaError) as failure:
        _delete(host, "t", 0)
    assert failure.value.code == ErrorCode.GROUP_ID_NOT_FOUND
    host.stable(protocol_type="connect", protocols={"x": b""})
    with pytest.raises(KafkaError) as failure:
        _delete(host, "t", 0)
    assert failure.value.code == ErrorCode.NON_EMPTY_GROUP


def test_a_group_is_deleted_with_its_offsets_if_it_is_empty(host: Any) -> None:  # G10
    [member] = host.stable()
    host.commit(1, member=member, generation=1)
    host.commit(1, group="h")

    def delete(*groups: str) -> dict[str, int]:
        decision = host.do(host.shard.delete_groups(groups, 20_000 + len(host.answers), host.now))
        return {result.group_id: result.error_code for result in decision.replies[0][1]}

    assert delete("g", "h", "none") == {"g": ErrorCode.NON_EMPTY_GROUP, "h": 0, "none": ErrorCode.GROUP_ID_NOT_FOUND}
    assert "h" not in host.shard.groups.by_id
    host.leave((member, None))
    assert delete("g") == {"g": 0}
    assert host.shard.groups.by_id == {}
    assert host.committed().committed_offset == -1
    host.reload()
    assert host.shard.groups.by_id == {}


def test_offsets_of_a_deleted_topic_go_with_it(host: Any) -> None:
    host.commit(1)
    host.commit(2, topic="u")
    before = host.shard.groups.topics

    left = SimpleNamespace(topics={"u": before.topics["u"]}, topic_names={}, brokers={})
    host.do(host.shard.topics_changed(left, frozenset({"t"}), host.now))
    assert host.committed().committed_offset == -1
    assert host.committed(topic="u").committed_offset == 2


# Expiry


def test_offsets_expire_only_after_the_group_has_become_empty(new_host: Callable[..., Any]) -> None:  # G09
    host = new_host(offsets_retention_ms=DAY_MS, session_timeout_max_ms=1000 * DAY_MS)
    [member] = host.stable(session_ms=20 * DAY_MS)
    host.commit(5, member=member, generation=1)
    host.advance(10 * DAY_MS)
    _expire(host)
    assert host.committed().committed_offset == 5, "the group reads the topic"
    host.leave((member, None))
    host.advance(DAY_MS - 1)
    _expire(host)
    assert host.committed().committed_offset == 5
    host.reload()
    host.advance(1)
    _expire(host)
    assert host.committed().committed_offset == -1
    assert host.shard.groups.by_id == {}, "a group without members and offsets is forgotten"
    host.reload()
    assert host.shard.groups.by_id == {}


def test_offsets_of_a_topic_no_longer_read_expire_in_a_living_group(new_host: Callable[..., Any]) -> None:  # G09
    host = new_host(offsets_retention_ms=DAY_MS, session_timeout_max_ms=1000 * DAY_MS)
    [member] = host.stable(session_ms=20 * DAY_MS)
    host.commit(5, member=member, generation=1)
    host.commit(6, member=member, generation=1, topic="u")
    host.advance(DAY_MS)
    _expire(host)
    assert host.committed().committed_offset == 5
    assert host.committed(topic="u").committed_offset == -1


def test_offsets_of_a_group_that_is_not_of_consumers_stay_while_it_lives(new_host: Callable[..., Any]) -> None:  # G09
    host = new_host(offsets_retention_ms=DAY_MS, session_timeout_max_ms=1000 * DAY_MS)
    [member] = host.stable(session_ms=20 * DAY_MS, protocol_type="connect", protocols={"x": b""})
    host.commit(5, member=member, generation=1)
    host.advance(5 * DAY_MS)
    _expire(host)
    assert host.committed().committed_offset == 5


def test_a_simple_consumers_offsets_expire_after_their_last_commit(new_host: Callable[..., Any]) -> None:  # G09
    host = new_host(offsets_retention_ms=DAY_MS)
    host.commit(5)
    host.commit(5, partition=1)
    host.advance(DAY_MS - 1)
    host.commit(6, partition=1)
    host.advance(1)
    _expire(host)
    assert host.committed().committed_offset == -1
    assert host.committed(partition=1).committed_offset == 6
    assert "g" in host.shard.groups.by_id


def test_a_commit_may_bring_its_own_retention(new_host: Callable[..., Any]) -> None:  # G09
    host = new_host(offsets_retention_ms=DAY_MS)
    host.commit(5, retention_ms=MINUTE_MS, version=4)
    host.commit(6, retention_ms=9 * DAY_MS, partition=1, version=4)
    assert [decode_record(record.key, record.value)[2].expire_timestamp - host.now_ms for record in host.log] == [  # type: ignore[index]
        MINUTE_MS,
        9 * DAY_MS,
    ]
    host.advance(MINUTE_MS)
    _expire(host)
    assert host.committed().committed_offset == -1
    host.advance(5 * DAY_MS)
    _expire(host)
    assert host.committed(partition=1).committed_offset == 6


def test_a_retention_beyond_the_end_of_time_keeps_the_offset(new_host: Callable[..., Any]) -> None:  # G09
    host = new_host(offsets_retention_ms=DAY_MS)
    host.commit(5, retention_ms=2**63 - 1, version=4)
    host.advance(9 * DAY_MS)
    _expire(host)
    assert host.committed().committed_offset == 5


def test_a_group_whose_id_was_only_given_out_is_not_kept_for_ever(host: Any) -> None:
    host.join()
    assert "g" in host.shard.groups.by_id
    host.advance(10_000)
    _expire(host)
    assert host.shard.groups.by_id == {}


def test_a_group_that_is_being_joined_is_kept(host: Any) -> None:
    host.new_member()
    _expire(host)
    assert host.group().state is State.PREPARING_REBALANCE
    pending = host.answers[host.join(group="h")].member_id
    _expire(host)
    assert pending in host.group("h").pending_join


# Replay


def test_records_of_kinds_not_known_are_passed_over(host: Any) -> None:
    host.shard.replay(b"\x00\x0b\x00\x01g", b"\0\0whatever")
    host.shard.replay(b"\x7f\xff", None)
    assert host.shard.groups.by_id == {}


def test_offsets_as_old_brokers_wrote_them_are_read(host: Any) -> None:
    key = encode_key(OffsetCommitKey(group="g", topic="t", partition=0))
    old_key = b"\0\0" + key[2:]
    for version, expected in ((0, -1), (1, 99), (2, -1), (3, -1)):
        value = OffsetCommitValue(offset=version, metadata="m", commit_timestamp=5, expire_timestamp=99 if version == 1 else -1)
        host.shard.replay(old_key if version == 0 else key, encode_value(value, version))
        [(_, _, committed)] = host.shard.offsets.of_group("g")
        assert (committed.offset, committed.commit_timestamp_ms, committed.expire_timestamp_ms) == (version, 5, expected)
    assert host.group().protocol_type is None


def test_the_list_of_groups_can_be_filtered(host: Any) -> None:
    host.stable()
    host.commit(group="simple")
    host.new_member(group="h")

    def names(states: list[str], types: list[str]) -> set[str]:
        return {group.group_id for group in host.shard.list_groups(states, types)}

    assert names([], []) == {"g", "simple", "h"}
    assert names(["stable"], []) == {"g"}
    assert names(["Empty", "PREPARINGREBALANCE"], ["classic"]) == {"simple", "h"}
    assert names([], ["consumer"]) == set()
    listed = {
        group.group_id: (group.protocol_type, group.group_state, group.group_type) for group in host.shard.list_groups([], [])
    }
    assert listed["g"] == ("consumer", "Stable", "classic")
    assert listed["simple"] == ("", "Empty", "classic")


def test_groups_are_described_with_metadata_only_when_they_are_stable(host: Any) -> None:
    leader, follower = host.stable(2)
    [described] = host.shard.describe_groups(["g"], 5)
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert {member.member_id: bytes(member.member_assignment) for member in described.members} == {
        leader: b"for 0",
        follower: b"for 1",
    }
    assert all(bytes(member.member_metadata) for member in described.members)
    host.join(leader)
    [described] = host.shard.describe_groups(["g"], 5)
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert not any(bytes(member.member_metadata) for member in described.members)
    [unknown] = host.shard.describe_groups(["none"], 5)
    assert (unknown.error_code, unknown.group_state) == (0, "Dead")
    [unknown] = host.shard.describe_groups(["none"], 6)
    assert (unknown.error_code, unknown.group_state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
