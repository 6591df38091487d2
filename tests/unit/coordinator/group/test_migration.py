"""A live group between the protocols, both ways (F40): nobody loses a partition by it, and it becomes what its members are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinator.group.assignors import Assignment
from ottla.coordinator.group.classic_group import ClassicGroup, State
from ottla.coordinator.group.consumer_group import ConsumerGroup
from ottla.coordinator.group.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    EmbeddedTopicPartitions,
    read_assignment,
    read_subscription,
    version_of,
    write_assignment,
)
from ottla.errors import ErrorCode, MalformedInput
from ottla.wire.codec import encode

TOPIC = b"t".ljust(16, b"\0")


def says(version: int = 1, topics: tuple[str, ...] = ("t",), owned: tuple[int, ...] = (), rack: str | None = None) -> bytes:
    """A consumer's subscription."""
    held = [EmbeddedTopicPartitions(topic="t", partitions=list(owned))] if owned else []
    message = ConsumerProtocolSubscription(topics=list(topics), owned_partitions=held, rack_id=rack)
    return version.to_bytes(2, "big") + encode(message, version)


def part(*partitions: int, user_data: bytes | None = None) -> bytes:
    """A leader's assignment for one member."""
    message = ConsumerProtocolAssignment(
        assigned_partitions=[EmbeddedTopicPartitions(topic="t", partitions=list(partitions))], user_data=user_data
    )
    return b"\0\1" + encode(message, 1)


def read(assignment: bytes) -> dict[str, list[int]]:
    return {topic.topic: topic.partitions for topic in read_assignment(assignment).assigned_partitions}


@pytest.fixture
def new(new_host: Callable[..., Any]) -> Callable[..., Any]:
    def make(**config: Any) -> Any:
        host = new_host(**{"consumer_assignment_interval_ms": 0, **config})
        host.set_topics(t=4, u=2)
        return host

    return make


@pytest.fixture
def host(new: Callable[..., Any]) -> Any:
    return new()


def classic_pair(host: Any, user_data: bytes | None = None, **options: Any) -> list[str]:
    """A stable classic group of two: the first has 0 and 1, the second 2 and 3."""
    options = {"protocols": {"range": says()}} | options
    joins = [host.new_member(**options) for _ in range(2)]
    host.advance(9000)
    generation = host.answers[joins[0][1]].generation_id
    leader = host.answers[joins[0][1]].leader
    members = sorted((member_id for member_id, _ in joins), key=lambda member_id: member_id != leader)
    parts = {members[0]: part(0, 1, user_data=user_data), members[1]: part(2, 3)}
    host.sync(members[1], generation)
    host.sync(members[0], generation, parts)
    assert host.group().state is State.STABLE
    return members


def rejoin(host: Any, member_id: str, *owned: int, **options: Any) -> dict[str, list[int]]:
    """JoinGroup and SyncGroup of a classic member in a group of the new protocol: what it gets."""
    joined = host.answers[host.join(member_id, **{"protocols": {"range": says(owned=owned)}} | options)]
    assert joined.error_code == 0
    assert (joined.protocol_type, joined.protocol_name, joined.leader, joined.members) == ("consumer", "range", "", [])
    synced = host.answers[host.sync(joined.member_id, joined.generation_id, instance=options.get("instance"))]
    assert synced.error_code == 0
    return read(synced.assignment)


# The formats


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_a_subscription_of_each_version(version: int) -> None:
    message = read_subscription(says(version, ("t", "u"), (1, 2), "r"))
    assert message.topics == ["t", "u"]
    assert [topic.partitions for topic in message.owned_partitions] == ([[1, 2]] if version >= 1 else [])
    assert message.rack_id == ("r" if version == 3 else None)


def test_a_later_version_is_read_as_the_last_known() -> None:
    later = (9).to_bytes(2, "big") + says(3)[2:] + b"more"
    assert read_subscription(later).topics == ["t"]
    assert version_of(later) == 3


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff", b"\0\1", b"\0\1\0\0\0\7", says()[:-1]])
def test_what_is_no_subscription(data: bytes) -> None:
    with pytest.raises(MalformedInput):
        read_subscription(data)


def test_an_assignment_names_topics_that_exist(host: Any) -> None:
    assignment: Assignment = {TOPIC: frozenset({2, 0}), b"x" * 16: frozenset({1})}
    assert read(write_assignment(assignment, host.shard.groups.topics, 0)) == {"t": [0, 2]}
    assert read_assignment(b"").assigned_partitions == []


# Upgrade


def test_an_assignment_of_a_topic_that_was_made_anew_with_fewer_partitions(host: Any) -> None:
    """The name is another topic's by now; the partitions it does not have are nobody's (found by a random walk)."""
    first, _ = classic_pair(host)
    host.set_topics(u=2)
    host.set_topics(t=2, u=2)
    assert host.beat("c", 0, ["t", "u"]).error_code == 0
    group = host.consumer_group()
    assert sorted(p for member in group.members.values() for p in member.assigned.get(b"t".ljust(15, b"\0") + b"\1", ())) == [
        0,
        1,
    ]
    assert first in group.members


def test_a_member_of_the_new_protocol_upgrades_a_classic_group(host: Any) -> None:
    first, second = classic_pair(host)
    host.commit(7, member=first, generation=1, version=8)
    joined = host.beat("c", 0, ["t"])
    assert (joined.error_code, joined.member_epoch, joined.assignment.topic_partitions) == (0, 2, [])
    group = host.consumer_group()
    assert {member_id: member.epoch for member_id, member in group.members.items()} == {first: 1, second: 1, "c": 2}
    assert set(group.members[first].assigned[TOPIC]) == {0, 1}, "everybody keeps what it has"
    assert set(group.members[second].assigned[TOPIC]) == {2, 3}
    assert host.committed().committed_offset == 7

    assert host.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoin(host, first, 0, 1) == {"t": [0, 1]}
    assert host.heartbeat(first, 2) == 0
    assert host.heartbeat(second, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    (kept,) = rejoin(host, second, 2, 3)["t"]
    assert group.members[second].epoch == 1, "it has to give up one before"
    assert host.beat("c", 2).assignment is None
    assert host.heartbeat(second, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert rejoin(host, second, kept) == {"t": [kept]}
    assert host.heartbeat(second, 2) == 0
    host.beat("c", 2)
    taken = sorted(group.members["c"].assigned.get(TOPIC, ()))
    assert sorted([0, 1, kept, *taken]) == [0, 1, 2, 3]
    assert group.state_name == "Stable"
    assert [member.member_type for member in host.shard.consumer_group_describe(["g"])[0].members] == [0, 0, 1]


def test_eager_members_give_up_by_joining(host: Any) -> None:
    first, second = classic_pair(host, protocols={"range": says(0)})
    host.beat("c", 0, ["t"])
    for member_id in (first, second):
        rejoin(host, member_id, protocols={"range": says(0)})
    host.beat("c", 2)
    group = host.consumer_group()
    assert group.state_name == "Stable"
    assert sorted(p for member in group.members.values() for p in member.assigned[TOPIC]) == [0, 1, 2, 3]


def test_commits_and_errors_of_classic_members_in_a_new_group(host: Any) -> None:
    first, second = classic_pair(host)
    host.beat("c", 0, ["t"])
    assert host.commit(member=first, generation=1, version=8) == 0, "by the old version too"
    assert host.commit(member=first, generation=2, version=8) == ErrorCode.ILLEGAL_GENERATION
    assert host.heartbeat(first, 5) == ErrorCode.ILLEGAL_GENERATION
    assert host.heartbeat("x", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert host.heartbeat("c", 2) == ErrorCode.UNKNOWN_MEMBER_ID, "it speaks the other protocol"
    assert host.answers[host.sync(second, 1)].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    rejoin(host, first, 0, 1)
    wrong = host.sync(first, 2, protocol_name="roundrobin")
    assert host.answers[wrong].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert host.answers[host.sync(first, 9)].error_code == ErrorCode.ILLEGAL_GENERATION


def test_a_new_classic_member_joins_a_new_group(host: Any) -> None:
    host.beat("c", 0, ["t"])
    asked = host.answers[host.join(protocols={"range": says()})]
    assert asked.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert rejoin(host, asked.member_id) == {}
    host.beat("c", 2)
    host.beat("c", 2, owned={"t": [0, 1]})
    assert host.heartbeat(asked.member_id, 3) == ErrorCode.REBALANCE_IN_PROGRESS, "what it waits for is free now"
    assert rejoin(host, asked.member_id) == {"t": [2, 3]}
    assert host.heartbeat(asked.member_id, 3) == 0


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"protocol_type": "connect"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {"sticky": says()}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {"range": b"\0"}}, ErrorCode.MEMBER_ID_REQUIRED),  # what it says is read when it has an id
        ({"protocols": {"range": b"\0"}, "member_id": "x"}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"protocols": {}}, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ({"session_ms": 5}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "x", "instance": "unknown"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_classic_members_are_refused_for(host: Any, options: dict[str, Any], error: ErrorCode) -> None:
    classic_pair(host)
    host.beat("c", 0, ["t"])
    written = len(host.log)
    assert host.answers[host.join(**options)].error_code == error
    assert len(host.log) == written


@pytest.mark.parametrize(
    ("config", "options", "user_data", "reason"),
    [
        ({"consumer_migration_policy": "disabled"}, {}, None, "migration.policy does not allow it"),
        ({"consumer_migration_policy": "DOWNGRADE"}, {}, None, "migration.policy does not allow it"),
        ({"consumer_size_max": 1}, {}, None, "more members than group.consumer.max.size"),
        ({}, {"protocol_type": "connect"}, None, "its protocol type is not `consumer`"),
        ({}, {"protocols": {"range": b"?"}}, None, "cannot be parsed"),
        ({}, {}, b"own", "user data"),
    ],
)
def test_what_is_not_upgraded_stays_as_it_is(
    new: Callable[..., Any], config: dict[str, Any], options: dict[str, Any], user_data: bytes | None, reason: str
) -> None:
    host = new(**config)
    first, _ = classic_pair(host, user_data, **options)
    written = len(host.log)
    refused = host.beat("c", 0, ["t"])
    assert refused.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert reason in refused.error_message
    assert len(host.log) == written
    assert host.heartbeat(first, 1) == 0


def test_whoever_waits_in_the_classic_group_joins_again(host: Any) -> None:
    first, second = classic_pair(host)
    waiting = host.join(second, protocols={"range": says(topics=("t", "u"))})
    assert waiting not in host.answers
    host.beat("c", 0, ["t"])
    assert host.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert set(host.consumer_group().members) == {first, second, "c"}
    rejoin(host, second, 2, 3)


def test_an_upgrade_in_a_rebalance_of_a_rebalance_takes_nothing_from_cooperative_members(host: Any) -> None:
    """G05: the classic group has forgotten its assignments, but a cooperative member still reads (found by a random walk)."""
    first, second = classic_pair(host, session_ms=60_000, rebalance_ms=10_000)
    held = {first: (0, 1), second: (2, 3)}

    def join_all() -> None:
        for member_id, owned in held.items():
            host.join(member_id, protocols={"range": says(owned=owned)}, session_ms=60_000, rebalance_ms=10_000)

    join_all()
    assert host.group().state is State.COMPLETING_REBALANCE
    host.join(version=3, protocols={"range": says()})
    join_all()
    assert host.group().members[first].assignment == b""
    assert host.beat("c", 0, ["t"]).assignment.topic_partitions == []
    members = host.consumer_group().members
    assert {name: set(members[name].assigned[TOPIC]) for name in held} == {first: {0, 1}, second: {2, 3}}


def test_an_upgrade_before_a_cooperative_member_heard_of_its_assignment(host: Any) -> None:
    """G05: it reads on what the assignment it has not got yet would have it give up (found by a random walk)."""
    first, second = classic_pair(host)
    leader = host.group().leader
    for member_id, owned in ((first, (0, 1)), (second, (2, 3))):
        host.join(member_id, protocols={"range": says(owned=owned)})
    follower = second if leader == first else first
    host.sync(leader, 2, {first: part(0), second: part(3)})
    assert host.group().state is State.STABLE
    assert host.beat("c", 0, ["t"]).error_code == 0
    members = host.consumer_group().members
    had = {first: {0, 1}, second: {2, 3}}
    assert set(members[follower].assigned[TOPIC]) == had[follower]
    assert set(members["c"].assigned.get(TOPIC, ())) <= had[leader], "only what the leader gave up is free"


def test_a_group_in_its_first_rebalance_is_upgraded_too(host: Any) -> None:
    member_id, waiting = host.new_member(protocols={"range": says()})
    joined = host.beat("c", 0, ["t"])
    assert host.answers[waiting].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert joined.error_code == 0
    rejoin(host, member_id)
    host.beat("c", joined.member_epoch)
    assert sorted(len(member.assigned.get(TOPIC, ())) for member in host.consumer_group().members.values()) == [2, 2]


def test_an_empty_classic_group_makes_room_and_keeps_its_offsets(host: Any) -> None:
    host.commit(9)
    assert isinstance(host.shard.groups.by_id["g"], ClassicGroup)
    assert host.beat("c", 0, ["t"]).error_code == 0
    assert host.committed().committed_offset == 9
    host.beat("c", -1)
    host.join(protocols={"range": says()}, version=3)
    assert isinstance(host.shard.groups.by_id["g"], ClassicGroup), "and the other way round"
    assert host.committed().committed_offset == 9


def test_sessions_of_classic_members_are_their_own(host: Any) -> None:
    first, second = classic_pair(host, session_ms=10_000)
    host.beat("c", 0, ["t"])
    host.advance(9_999)
    host.heartbeat(first, 1)
    host.advance(1)
    assert set(host.consumer_group().members) == {first, "c"}
    del second


def test_a_classic_member_that_does_not_join_or_sync_in_time_goes(host: Any) -> None:
    first, second = classic_pair(host, session_ms=50_000, rebalance_ms=20_000)
    host.beat("c", 0, ["t"])
    host.heartbeat(first, 1)
    host.join(second, protocols={"range": says(owned=(2, 3))}, session_ms=50_000, rebalance_ms=20_000)
    for _ in range(2):
        host.advance(9_999)
        assert host.heartbeat(first, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert set(host.consumer_group().members) == {first, second, "c"}
    host.advance(2)
    assert set(host.consumer_group().members) == {"c"}, "one never joined, the other never synced"


# Downgrade


@pytest.mark.parametrize("how", ["leave", "session", "admin"])
def test_the_last_member_of_the_new_protocol_leaves(host: Any, how: str) -> None:
    first, second = classic_pair(host, session_ms=60_000, rebalance_ms=300_000)
    host.beat("c", 0, ["t"])
    host.commit(7, member=first, generation=1, version=8)
    match how:
        case "leave":
            assert host.beat("c", -1).error_code == 0
        case "session":
            host.advance(45_000)
        case "admin":
            assert host.leave(("c", None)) == [0]
    group = host.group()
    assert (group.state, group.generation, group.protocol_name) == (State.PREPARING_REBALANCE, 2, "range")
    assert set(group.members) == {first, second}
    assert host.committed().committed_offset == 7
    host.compact()

    tokens = [host.join(member_id, protocols={"range": says()}) for member_id in (first, second)]
    assert [host.answers[token].generation_id for token in tokens] == [3, 3]
    host.sync(second, 3)
    host.sync(first, 3, {first: part(0, 1), second: part(2, 3)})
    assert host.group().state is State.STABLE
    host.reload()
    assert host.group().generation == 3


def test_a_downgraded_group_loaded_anew_is_classic_with_the_target_as_assignment(host: Any) -> None:
    first, second = classic_pair(host)
    host.beat("c", 0, ["t"])
    host.beat("c", -1)
    host.reload()
    group = host.group()
    assert (group.state, group.generation) == (State.STABLE, 2)
    got = [partition for member in group.members.values() for partition in read(member.assignment).get("t", ())]
    assert len(got) == len(set(got)) == 3, "what was intended for the one who left is free"
    assert host.heartbeat(first, 2) == 0
    del second


@pytest.mark.parametrize("config", [{"consumer_migration_policy": "upgrade"}, {"size_max": 1}])
def test_where_a_downgrade_is_not_allowed_the_group_goes_on(new: Callable[..., Any], config: dict[str, Any]) -> None:
    host = new(**config) if "size_max" not in config else new()
    first, second = classic_pair(host)
    if "size_max" in config:
        from dataclasses import replace

        host.config = replace(host.config, **config)
        host.shard.settings_changed(host.config, {})
    host.beat("c", 0, ["t"])
    host.beat("c", -1)
    group = host.consumer_group()
    assert set(group.members) == {first, second}
    for _ in range(2):
        for member_id in (first, second):
            has = sorted(group.members[member_id].assigned.get(TOPIC, ()))
            rejoin(host, member_id, *has)
    assert group.state_name == "Stable"
    assert all(len(member.assigned[TOPIC]) == 2 for member in group.members.values())


def test_the_last_of_all_leaves_an_empty_group_of_the_new_protocol(host: Any) -> None:
    host.beat("c", 0, ["t"])
    host.beat("c", -1)
    assert isinstance(host.shard.groups.by_id["g"], ConsumerGroup)


# Static members change their protocol


def test_a_static_member_goes_over_to_the_new_protocol(host: Any) -> None:
    """A rolling restart: one static member stops as classic and starts with the new protocol, in its own place."""
    token = host.join(instance="i", protocols={"range": says()})
    host.advance(9000)
    member_id = host.answers[token].member_id
    host.sync(member_id, 1, {member_id: part(0, 1, 2, 3)}, instance="i")
    joined = host.beat("new", 0, ["t"], instance="i")
    assert joined.error_code == 0
    assert [topic.partitions for topic in joined.assignment.topic_partitions] == [[0, 1, 2, 3]]
    group = host.consumer_group()
    assert set(group.members) == {"new"}
    assert group.members["new"].classic is None
    assert host.heartbeat(member_id, 1, instance="i") == ErrorCode.FENCED_INSTANCE_ID


def test_and_back_which_downgrades_the_group(host: Any) -> None:
    host.beat("c", 0, ["t"], instance="i")
    host.beat("c", -2, instance="i")
    joined = host.answers[host.join(instance="i", protocols={"range": says()}, session_ms=10_000)]
    assert joined.error_code == 0
    group = host.group()
    assert (group.state, group.generation, joined.generation_id) == (State.STABLE, 2, 2), "nothing to rebalance for"
    synced = host.answers[host.sync(joined.member_id, 2, instance="i")]
    assert read(synced.assignment) == {"t": [0, 1, 2, 3]}
    host.advance(10_000)
    assert not host.group().members, "its session runs in the classic group"


def test_back_with_another_subscription_rebalances(host: Any) -> None:
    host.beat("c", 0, ["t"], instance="i")
    host.beat("c", -2, instance="i")
    joined = host.answers[host.join(instance="i", protocols={"range": says(topics=("u",))})]
    assert host.group().state is State.PREPARING_REBALANCE
    assert host.answers[host.sync(joined.member_id, joined.generation_id, instance="i")].error_code != 0
    again = host.answers[host.join(joined.member_id, instance="i", protocols={"range": says(topics=("u",))})]
    assert again.error_code == 0


def test_classic_static_members_in_a_new_group(host: Any) -> None:
    host.beat("c", 0, ["t"])
    first = host.answers[host.join(instance="i", protocols={"range": says()})]
    back = host.answers[host.join(instance="i", protocols={"range": says()})]
    assert first.error_code == back.error_code == 0
    assert first.member_id != back.member_id
    assert host.heartbeat(first.member_id, first.generation_id, instance="i") == ErrorCode.FENCED_INSTANCE_ID
    assert host.answers[host.join(first.member_id, instance="i", protocols={"range": says()})].error_code == (
        ErrorCode.FENCED_INSTANCE_ID
    )
    assert host.leave((first.member_id, "i"), ("", "i"), ("", "x")) == [
        ErrorCode.FENCED_INSTANCE_ID,
        0,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert set(host.consumer_group().members) == {"c"}
