"""A host without a loop: it appends to a list, replays, keeps the timers, and lets time pass when told to.

It holds a shard to its contract: each token is answered once; a shard loaded from the log knows what this one knows.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest

from ottla.coordinator.group.classic_group import ClassicGroup, State
from ottla.coordinator.group.consumer_group import ConsumerGroup
from ottla.coordinator.group.group import Caller, GroupConfig
from ottla.coordinator.group.shard import GroupShard
from ottla.coordinator.shard import CoordinatorRecord, Decision, Now, SetTimer, TimerKey
from ottla.errors import KafkaError
from ottla.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    RequestTopicPartitions,
)
from ottla.protocol.messages.heartbeat import HeartbeatRequest
from ottla.protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics
from ottla.protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

START_MS = 1_700_000_000_000


def subscription(*topics: str) -> bytes:
    """A consumer's subscription, version 0."""
    names = b"".join(len(name).to_bytes(2, "big") + name.encode() for name in topics)
    return b"\0\0" + len(topics).to_bytes(4, "big") + names + b"\xff\xff\xff\xff"


@dataclass(frozen=True)
class FakeTopic:
    topic_id: bytes
    partitions: tuple[Any, ...]


@dataclass(frozen=True)
class FakeTopics:
    topics: dict[str, FakeTopic]

    @property
    def topic_names(self) -> dict[bytes, str]:
        return {topic.topic_id: name for name, topic in self.topics.items()}

    @property
    def brokers(self) -> dict[int, Any]:
        return {}


def topics(*names: str, salt: int = 0) -> FakeTopics:
    return FakeTopics({name: FakeTopic(name.encode().ljust(15, b"\0") + bytes([salt]), (None, None, None)) for name in names})


class Host:
    def __init__(self, **config: Any) -> None:
        self.config = replace(GroupConfig(), **config)
        self.shard = GroupShard(self.config, 0)
        self.ms = 5_000
        self.now_ms = START_MS
        """Wall time; it passes with `ms`, and a test may set it."""
        self.shard.topics_changed(topics("t", "u"), frozenset(), self.now)
        self.log: list[CoordinatorRecord] = []
        self.timers: dict[TimerKey, int] = {}
        self.answers: dict[int, Any] = {}
        self._tokens = itertools.count(1)
        self._made: dict[str, int] = {"t": 0, "u": 0}

    # What a host does

    def do(self, decision: Decision) -> Decision:
        for record in decision.records:
            self.log.append(record)
            if decision.message is not None:
                continue
            if record.message is None:
                self.shard.replay(record.key, record.value)
            else:
                self.shard.replay_message(record.message)
        if decision.message is not None and decision.records:
            self.shard.replay_message(decision.message)
        for timer in decision.timers:
            if isinstance(timer, SetTimer):
                self.timers[timer.key] = timer.due_ms
            else:
                self.timers.pop(timer.key, None)
        for token, response in decision.replies:
            assert isinstance(token, int)
            assert token not in self.answers, f"token {token} is answered twice"
            self.answers[token] = response
        self.check()
        return decision

    def check(self) -> None:
        """Contract 1: the log alone gives the same durable state."""
        loaded = GroupShard(self.config, 0)
        for record in self.log:
            loaded.replay(record.key, record.value)
        for group_id, group in self.shard.groups.by_id.items():
            assert list(loaded.offsets.of_group(group_id)) == list(self.shard.offsets.of_group(group_id))
            if isinstance(group, ClassicGroup) and group.state in (State.STABLE, State.EMPTY) and group_id in loaded.groups.by_id:
                assert durable(loaded.groups.by_id[group_id]) == durable(group)
            if isinstance(group, ConsumerGroup):
                same = loaded.groups.by_id[group_id]
                assert isinstance(same, ConsumerGroup)
                assert same.facts() == group.facts()
        assert set(loaded.groups.by_id) <= set(self.shard.groups.by_id)

    def advance(self, ms: int) -> None:
        """Let time pass, with the timers that are due in it, in their order."""
        end_ms = self.ms + ms
        while True:
            due = [(at, key) for key, at in self.timers.items() if at <= end_ms]
            if not due:
                break
            at, key = min(due)
            del self.timers[key]
            self._pass(max(self.ms, at))
            self.do(self.shard.on_timer(key, self.now))
        self._pass(end_ms)

    def _pass(self, until_ms: int) -> None:
        self.now_ms += until_ms - self.ms
        self.ms = until_ms

    @property
    def now(self) -> Now:
        return Now(self.ms, self.now_ms)

    def reload(self) -> None:
        """The broker restarts: what is not in the log is gone."""
        known = self.shard.groups.topics
        self.shard = GroupShard(self.config, 0)
        self.timers.clear()
        for record in self.log:
            self.shard.replay(record.key, record.value)
        self.do(self.shard.topics_changed(known, frozenset(), self.now))
        self.do(self.shard.on_loaded(self.now))

    def compact(self) -> None:
        """Keep the last record of each key; drop tombstones."""
        last = {record.key: at for at, record in enumerate(self.log)}
        self.log = [record for at, record in enumerate(self.log) if last[record.key] == at and record.value is not None]

    def group(self, group_id: str = "g") -> ClassicGroup:
        group = self.shard.groups.by_id[group_id]
        assert isinstance(group, ClassicGroup)
        return group

    # What members say. Each returns a token; `answers[token]` is there once it is answered.

    def join(
        self,
        member_id: str = "",
        *,
        group: str = "g",
        instance: str | None = None,
        protocols: dict[str, bytes] | None = None,
        protocol_type: str = "consumer",
        session_ms: int = 10_000,
        rebalance_ms: int = 60_000,
        version: int = 9,
        client: str = "c",
    ) -> int:
        token = next(self._tokens)
        given = {"range": subscription("t")} if protocols is None else protocols
        request = JoinGroupRequest(
            group_id=group,
            member_id=member_id,
            group_instance_id=instance,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=rebalance_ms if version else -1,
            protocol_type=protocol_type,
            protocols=[JoinGroupRequestProtocol(name=name, metadata=data) for name, data in given.items()],
        )
        self.do(self.shard.join_group(request, Caller(version, client, "/h", f"id{token}"), token, self.now))
        return token

    def new_member(self, **options: Any) -> tuple[str, int]:
        """A dynamic member up to its second JoinGroup: its id, and the token of that."""
        first = self.answers[self.join(**options)]
        return first.member_id, self.join(first.member_id, **options)

    def sync(
        self,
        member_id: str,
        generation: int,
        assignments: dict[str, bytes] | None = None,
        *,
        group: str = "g",
        instance: str | None = None,
        protocol_type: str | None = None,
        protocol_name: str | None = None,
    ) -> int:
        token = next(self._tokens)
        request = SyncGroupRequest(
            group_id=group,
            generation_id=generation,
            member_id=member_id,
            group_instance_id=instance,
            protocol_type=protocol_type,
            protocol_name=protocol_name,
            assignments=[
                SyncGroupRequestAssignment(member_id=name, assignment=data) for name, data in (assignments or {}).items()
            ],
        )
        self.do(self.shard.sync_group(request, token, self.now))
        return token

    def heartbeat(self, member_id: str, generation: int, *, group: str = "g", instance: str | None = None) -> int:
        """The error code."""
        token = next(self._tokens)
        request = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member_id, group_instance_id=instance)
        self.do(self.shard.heartbeat(request, token, self.now))
        code: int = self.answers[token].error_code
        return code

    def leave(self, *members: tuple[str, str | None], group: str = "g") -> list[int]:
        """The error codes."""
        token = next(self._tokens)
        leaving = [MemberIdentity(member_id=member_id, group_instance_id=instance) for member_id, instance in members]
        self.do(self.shard.leave_group(LeaveGroupRequest(group_id=group, members=leaving), token, self.now))
        return [member.error_code for member in self.answers[token].members]

    def commit(
        self,
        offset: int = 5,
        *,
        group: str = "g",
        member: str = "",
        generation: int = -1,
        instance: str | None = None,
        topic: str = "t",
        partition: int = 0,
        metadata: str | None = "",
        retention_ms: int = -1,
        version: int = 8,
        leader_epoch: int = -1,
    ) -> int:
        """The error code."""
        token = next(self._tokens)
        committed = OffsetCommitRequestPartition(
            partition_index=partition,
            committed_offset=offset,
            committed_metadata=metadata,
            committed_leader_epoch=leader_epoch,
        )
        request = OffsetCommitRequest(
            group_id=group,
            member_id=member,
            generation_id_or_member_epoch=generation,
            group_instance_id=instance,
            retention_time_ms=retention_ms,
            topics=[OffsetCommitRequestTopic(name=topic, partitions=[committed])],
        )
        try:
            self.do(self.shard.offset_commit(request, version, token, self.now))
        except KafkaError as error:
            return error.code
        code: int = self.answers[token].topics[0].partitions[0].error_code
        return code

    def committed(self, *, group: str = "g", topic: str = "t", partition: int = 0) -> Any:
        asked = [OffsetFetchRequestTopics(name=topic, partition_indexes=[partition])]
        answer = self.shard.offset_fetch(OffsetFetchRequestGroup(group_id=group, topics=asked), require_stable=True)
        return answer.topics[0].partitions[0]

    # What members of the new protocol say

    def set_topics(self, **counts: Any) -> None:
        """The cluster has these topics from now on, each with so many partitions."""
        before = self.shard.groups.topics.topics
        known = {}
        for name, count in counts.items():
            if name in before and len(before[name].partitions) == count:
                known[name] = before[name]
                continue
            if name not in before:
                # A topic that is made anew has another id; the first one's says its name.
                self._made[name] = self._made.get(name, -1) + 1
            known[name] = FakeTopic(name.encode().ljust(15, b"\0") + bytes([self._made[name]]), (None,) * count)
        self.do(self.shard.topics_changed(FakeTopics(known), frozenset(), self.now))  # type: ignore[arg-type]

    def beat(
        self,
        member_id: str,
        epoch: int,
        topics: Sequence[str] | None = None,
        owned: dict[str, Sequence[int]] | None = None,
        *,
        group: str = "g",
        pattern: str | None = None,
        instance: str | None = None,
        assignor: str | None = None,
        rack: str | None = None,
        rebalance_ms: int = -1,
        version: int = 1,
        client: str = "c",
    ) -> ConsumerGroupHeartbeatResponse:
        """One ConsumerGroupHeartbeat. One that joins (epoch 0) says what such a one must say, if not told otherwise."""
        token = next(self._tokens)
        if epoch == 0:
            owned = {} if owned is None else owned
            rebalance_ms = 60_000 if rebalance_ms == -1 else rebalance_ms
        ids = {name: topic.topic_id for name, topic in self.shard.groups.topics.topics.items()}
        request = ConsumerGroupHeartbeatRequest(
            group_id=group,
            member_id=member_id,
            member_epoch=epoch,
            instance_id=instance,
            rack_id=rack,
            rebalance_timeout_ms=rebalance_ms,
            subscribed_topic_names=None if topics is None else list(topics),
            subscribed_topic_regex=pattern,
            server_assignor=assignor,
            topic_partitions=None
            if owned is None
            else [RequestTopicPartitions(topic_id=ids[name], partitions=list(parts)) for name, parts in owned.items()],
        )
        caller = Caller(version, client, "/h", f"id{token}")
        self.do(self.shard.consumer_group_heartbeat(request, caller, token, self.now))
        answer = self.answers[token]
        assert isinstance(answer, ConsumerGroupHeartbeatResponse)
        return answer

    def consumer_group(self, group_id: str = "g") -> ConsumerGroup:
        group = self.shard.groups.by_id[group_id]
        assert isinstance(group, ConsumerGroup)
        return group

    # Groups that have come together

    def stable(self, count: int = 1, *, group: str = "g", **options: Any) -> list[str]:
        """A stable group of dynamic members, the leader first, each with the assignment `for <number>`."""
        joins = [self.new_member(group=group, **options) for _ in range(count)]
        self.advance(self.config.initial_rebalance_delay_ms * (count + 1))
        answers = [self.answers[token] for _, token in joins]
        leader = answers[0].leader
        members = sorted((member_id for member_id, _ in joins), key=lambda member_id: member_id != leader)
        self.settle(members, answers[0].generation_id, group=group)
        return members

    def settle(self, members: list[str], generation: int, *, group: str = "g") -> None:
        """All members sync, followers first."""
        assignments = {member_id: f"for {number}".encode() for number, member_id in enumerate(members)}
        tokens = [self.sync(member_id, generation, group=group) for member_id in members[1:]]
        tokens.append(self.sync(members[0], generation, assignments, group=group))
        assert all(self.answers[token].error_code == 0 for token in tokens)
        assert self.group(group).state is State.STABLE


def durable(group: Any) -> Any:
    return (
        group.generation,
        group.protocol_type,
        group.protocol_name,
        group.leader,
        group.state,
        [
            (
                member.member_id,
                member.instance_id,
                member.client_id,
                member.session_timeout_ms,
                member.rebalance_timeout_ms,
                member.subscription(group.protocol_name),
                member.assignment,
            )
            for member in group.members.values()
        ],
        dict(group.instances),
        group.subscribed_topics,
    )


@pytest.fixture
def new_host() -> Callable[..., Host]:
    return Host


@pytest.fixture
def host() -> Host:
    return Host()
