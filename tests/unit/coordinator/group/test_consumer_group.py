"""Groups of the new protocol (F40): joining, epochs, giving up first (G05), fencing, timeouts, static members, patterns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from ottla.coordinator.group.consumer_member import MemberState
from ottla.errors import ErrorCode
from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatResponse
from ottla.protocol.messages.offset_fetch import OffsetFetchRequestGroup, OffsetFetchRequestTopics


@pytest.fixture
def host(new_host: Callable[..., Any]) -> Any:
    """A host whose groups may be assigned at any time."""
    host = new_host(consumer_assignment_interval_ms=0)
    host.set_topics(t=4, u=2)
    return host


def given(response: ConsumerGroupHeartbeatResponse) -> dict[str, list[int]] | None:
    """The assignment by names; None if the response has none."""
    if response.assignment is None:
        return None
    return {topic.topic_id.rstrip(b"\0").decode(): topic.partitions for topic in response.assignment.topic_partitions}


def settle(host: Any, *members: str) -> None:
    """Each member heartbeats until all have what they are to have, giving up at once what it is told to."""
    group = host.consumer_group()
    for _ in range(10):
        for member_id in members:
            member = group.members[member_id]
            names = host.shard.groups.topics.topic_names
            owned = {names[topic]: sorted(partitions) for topic, partitions in member.assigned.items()}
            assert host.beat(member_id, member.epoch, owned=owned, instance=member.instance_id).error_code == 0
        if group.state_name == "Stable":
            return
    raise AssertionError(f"{group.state_name}: {group.members}")


def assigned(host: Any, member_id: str, topic: str = "t") -> set[int]:
    member = host.consumer_group().members[member_id]
    return set(member.assigned.get(topic.encode().ljust(16, b"\0"), {}))


# Joining


def test_the_first_member_gets_everything_with_its_first_heartbeat(host: Any) -> None:
    response = host.beat("a", 0, ["t", "u"])
    assert (response.error_code, response.member_id, response.member_epoch) == (0, "a", 2)
    assert response.heartbeat_interval_ms == 5000
    assert given(response) == {"t": [0, 1, 2, 3], "u": [0, 1]}
    assert host.consumer_group().state_name == "Stable"


def test_the_member_id_is_made_here_only_in_version_0(host: Any) -> None:
    assert host.beat("", 0, ["t"], version=0).member_id == "id1"
    refused = host.beat("", 0, ["t"], version=1)
    assert (refused.error_code, refused.error_message) == (ErrorCode.INVALID_REQUEST, "the member id is blank")


def test_a_heartbeat_that_says_nothing_new_writes_nothing(host: Any) -> None:
    host.beat("a", 0, ["t"])
    written = len(host.log)
    response = host.beat("a", 2)
    assert (response.error_code, response.member_epoch, given(response)) == (0, 2, None)
    assert len(host.log) == written
    full = host.beat("a", 2, ["t"], {"t": [0, 1, 2, 3]}, rebalance_ms=60_000)
    assert given(full) == {"t": [0, 1, 2, 3]}, "who says everything is told everything"
    assert len(host.log) == written


def test_a_topic_that_does_not_exist_yet_is_assigned_when_it_does(host: Any) -> None:
    assert given(host.beat("a", 0, ["new"])) == {}
    epoch = host.consumer_group().epoch
    host.set_topics(t=4, u=2, new=1)
    assert given(host.beat("a", epoch)) == {"new": [0]}
    assert host.consumer_group().epoch == epoch + 1


@pytest.mark.parametrize(
    ("said", "error", "message"),
    [
        ({"group": " "}, ErrorCode.INVALID_REQUEST, "the group id is blank"),
        ({"instance": ""}, ErrorCode.INVALID_REQUEST, "the instance id is blank"),
        ({"rack": ""}, ErrorCode.INVALID_REQUEST, "the rack id is blank"),
        ({"owned": {"t": [0]}}, ErrorCode.INVALID_REQUEST, "a joining member must send an empty list"),
        ({"topics": None}, ErrorCode.INVALID_REQUEST, "a joining member must subscribe"),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST, "member epoch -2 requires an instance id"),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST, "member epoch -3 is invalid"),
        ({"epoch": 1}, ErrorCode.GROUP_ID_NOT_FOUND, "group g does not exist"),
        ({"epoch": -1}, ErrorCode.GROUP_ID_NOT_FOUND, "group g does not exist"),
        ({"assignor": "x"}, ErrorCode.UNSUPPORTED_ASSIGNOR, "assignor x is not supported; supported: uniform"),
        ({"pattern": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION, "'(' is not a valid RE2 regular expression"),
        ({"pattern": "(?=t)"}, ErrorCode.INVALID_REGULAR_EXPRESSION, "'(?=t)' is not a valid RE2 regular expression"),
    ],
)  # fmt: skip
def test_what_is_refused_leaves_no_trace(host: Any, said: dict[str, Any], error: ErrorCode, message: str) -> None:
    said = {"epoch": 0, "topics": ["t"]} | said
    response = host.beat("a", said.pop("epoch"), said.pop("topics"), **said)
    assert response.error_code == error
    assert response.error_message.startswith(message)
    assert not host.log
    assert not host.timers
    assert not host.shard.groups.by_id


def test_first_request_without_a_rebalance_timeout_is_refused(host: Any) -> None:
    from ottla.coordinator.group.group import Caller
    from ottla.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="a", topic_partitions=[], subscribed_topic_names=["t"])
    decision = host.shard.consumer_group_heartbeat(request, Caller(1, "c", "/h", "id"), 7, host.now)
    assert decision.replies[0][1].error_message == "a joining member must set the rebalance timeout"


def test_the_protocol_can_be_switched_off(new_host: Callable[..., Any]) -> None:
    host = new_host(rebalance_protocols=frozenset({"classic"}))
    assert host.beat("a", 0, ["t"]).error_code == ErrorCode.UNSUPPORTED_VERSION


def test_a_full_group_lets_its_own_members_in_only(new_host: Callable[..., Any]) -> None:
    host = new_host(consumer_size_max=1)
    host.beat("a", 0, ["t"])
    assert host.beat("b", 0, ["t"]).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert host.beat("a", 0, ["t"]).error_code == 0


# From one assignment to the next


def test_a_partition_is_given_up_before_it_is_given_on(host: Any) -> None:
    """G05, step by step: `a` has all four; `b` comes."""
    host.beat("a", 0, ["t"])
    joined = host.beat("b", 0, ["t"])
    assert (joined.member_epoch, given(joined)) == (3, {}), "in the new epoch, with nothing yet"
    group = host.consumer_group()
    assert group.members["b"].state is MemberState.UNRELEASED_PARTITIONS
    assert group.state_name == "Reconciling"

    told = host.beat("a", 2)
    assert (told.member_epoch, given(told)) == (2, {"t": [0, 1]}), "in its epoch until it has given up"
    assert group.members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert given(host.beat("b", 3)) is None
    assert given(host.beat("a", 2, owned={"t": [0, 1, 2, 3]})) is None, "it has not given up yet"
    assert given(host.beat("b", 3)) is None

    done = host.beat("a", 2, owned={"t": [0, 1]})
    assert (done.member_epoch, given(done)) == (3, None)
    assert given(host.beat("b", 3)) == {"t": [2, 3]}
    assert group.state_name == "Stable"
    assert [member.epoch for member in group.members.values()] == [3, 3]


def test_a_member_that_leaves_is_followed_by_the_others(host: Any) -> None:
    host.beat("a", 0, ["t"])
    host.beat("b", 0, ["t"])
    settle(host, "a", "b")
    left = host.beat("b", -1)
    assert (left.error_code, left.member_epoch) == (0, -1)
    assert host.consumer_group().state_name == "Assigning"
    assert given(host.beat("a", 3)) == {"t": [0, 1, 2, 3]}
    host.beat("a", -1)
    assert host.consumer_group().state_name == "Empty"
    assert host.beat("a", -1).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_what_is_no_longer_subscribed_to_is_given_up_at_once(host: Any) -> None:
    host.beat("a", 0, ["t", "u"])
    assert given(host.beat("a", 2, ["u"])) == {"u": [0, 1]}
    assert host.consumer_group().members["a"].state is MemberState.UNREVOKED_PARTITIONS
    assert host.beat("a", 2, owned={"u": [0, 1]}).member_epoch == 3
    assert host.consumer_group().state_name == "Stable"


def test_a_change_of_the_target_while_giving_up(host: Any) -> None:
    """`b` leaves again before `a` has given up: what `a` was told to give up comes back to it."""
    host.beat("a", 0, ["t"])
    host.beat("b", 0, ["t"])
    assert given(host.beat("a", 2)) == {"t": [0, 1]}
    host.beat("b", -1)
    assert given(host.beat("a", 2, owned={"t": [0, 1, 2, 3]})) is None, "still to be given up"
    back = host.beat("a", 2, owned={"t": [0, 1]})
    assert (back.member_epoch, given(back)) == (4, {"t": [0, 1, 2, 3]})


def test_assignments_are_not_made_more_often_than_configured(new_host: Callable[..., Any]) -> None:
    host = new_host(consumer_assignment_interval_ms=1000)
    host.set_topics(t=4)
    host.beat("a", 0, ["t"])
    host.advance(999)
    joined = host.beat("b", 0, ["t"])
    assert (joined.member_epoch, given(joined)) == (2, {})
    assert host.consumer_group().state_name == "Assigning"
    host.advance(1)
    assert given(host.beat("a", 2)) == {"t": [0, 1]}


def test_a_clock_that_was_set_back_does_not_hold_assignments_up(new_host: Callable[..., Any]) -> None:
    """Simulator seed 300: nobody was given anything until it was as late again."""
    host = new_host(consumer_assignment_interval_ms=1000)
    host.set_topics(t=4)
    host.beat("a", 0, ["t"])
    host.now_ms -= 1_800_000
    host.beat("b", 0, ["t"])
    assert given(host.beat("a", 2)) == {"t": [0, 1]}


def test_partitions_added_and_topics_deleted_raise_the_group_epoch(host: Any) -> None:
    host.beat("a", 0, ["t", "u"])
    host.set_topics(t=5, u=2)
    assert given(host.beat("a", 2)) == {"t": [0, 1, 2, 3, 4], "u": [0, 1]}
    host.set_topics(t=5)
    assert given(host.beat("a", 3)) == {"t": [0, 1, 2, 3, 4]}
    host.set_topics(t=5, other=1)
    written = len(host.log)
    host.beat("a", 3, owned={"t": [0, 1, 2, 3, 4]})
    epoch = host.consumer_group().epoch
    host.set_topics(t=5, other=2)
    host.beat("a", epoch)
    assert host.consumer_group().epoch == epoch, "topics of others do not matter"
    assert len(host.log) == written + 1


def test_most_members_choose_the_assignor(host: Any) -> None:
    host.beat("a", 0, ["t", "u"], assignor="range")
    host.beat("b", 0, ["t", "u"])
    settle(host, "a", "b")
    assert host.consumer_group().assignor("uniform") == "range"
    assert (assigned(host, "a"), assigned(host, "a", "u")) == ({0, 1}, {0})


# Fencing


def test_a_member_with_another_epoch_is_fenced(host: Any) -> None:
    host.beat("a", 0, ["t"])
    assert host.beat("a", 3).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert host.beat("a", 1).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    assert host.beat("x", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_missed_one_reply_goes_on(host: Any) -> None:
    host.beat("a", 0, ["t"])
    host.set_topics(t=5, u=2)
    assert host.beat("a", 2).member_epoch == 3
    again = host.beat("a", 2, ["t"], {"t": [0, 1, 2, 3]}, rebalance_ms=60_000)
    assert (again.error_code, again.member_epoch, given(again)) == (0, 3, {"t": [0, 1, 2, 3, 4]})
    assert host.beat("a", 2).error_code == ErrorCode.FENCED_MEMBER_EPOCH, "it must say what it has"
    assert host.beat("a", 2, owned={"u": [0]}).error_code == ErrorCode.FENCED_MEMBER_EPOCH, "which must be its own"


def test_a_member_that_joins_again_is_told_everything(host: Any) -> None:
    host.beat("a", 0, ["t"])
    again = host.beat("a", 0, ["t"])
    assert (again.member_epoch, given(again)) == (2, {"t": [0, 1, 2, 3]})


# Time


def test_a_member_that_is_not_heard_of_goes_when_its_session_is_over(host: Any) -> None:
    """G06."""
    host.beat("a", 0, ["t"])
    host.advance(44_999)
    assert host.beat("a", 2).error_code == 0
    host.advance(44_999)
    assert "a" in host.consumer_group().members
    host.advance(1)
    assert host.consumer_group().is_empty
    assert host.beat("a", 2).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert not host.timers


def test_a_member_that_does_not_give_up_in_time_is_removed(host: Any) -> None:
    host.beat("a", 0, ["t"], rebalance_ms=10_000)
    host.beat("b", 0, ["t"])
    host.beat("a", 2)
    for _ in range(4):
        host.advance(2_499)
        host.beat("a", 2, owned={"t": [0, 1, 2, 3]})
        host.beat("b", 3)
    host.advance(10)
    assert set(host.consumer_group().members) == {"b"}
    assert given(host.beat("b", 3)) == {"t": [0, 1, 2, 3]}


def test_one_that_gave_up_in_time_stays(host: Any) -> None:
    host.beat("a", 0, ["t"], rebalance_ms=10_000)
    host.beat("b", 0, ["t"])
    host.beat("a", 2)
    assert host.beat("a", 2, owned={"t": [0, 1]}).member_epoch == 3
    host.advance(20_000)
    assert set(host.consumer_group().members) == {"a", "b"}


def test_after_a_restart_members_go_on_and_the_timers_run(host: Any) -> None:
    """G07."""
    host.beat("a", 0, ["t"], rebalance_ms=10_000)
    host.beat("b", 0, ["t"])
    host.beat("a", 2)
    host.compact()
    host.reload()
    assert host.beat("b", 3).error_code == 0
    assert host.beat("a", 2, owned={"t": [0, 1, 2, 3]}).error_code == 0
    assert host.consumer_group().epoch == 3, "nothing changed meanwhile"
    host.advance(10_000)
    assert set(host.consumer_group().members) == {"b"}, "it had the rebalance timeout again, and no more"
    host.advance(60_000)
    assert host.consumer_group().is_empty


# Static members


def test_a_static_member_that_comes_back_finds_its_partitions(host: Any) -> None:
    """G04."""
    host.beat("a", 0, ["t"], instance="i")
    host.beat("b", 0, ["t"])
    settle(host, "a", "b")
    assert host.beat("a", -2, instance="i").member_epoch == -2
    assert assigned(host, "a") == {0, 1}, "they are kept for it"
    epoch = host.consumer_group().epoch
    back = host.beat("a2", 0, ["t"], instance="i")
    assert (back.member_epoch, given(back)) == (epoch, {"t": [0, 1]})
    assert host.consumer_group().epoch == epoch, "no rebalance"
    assert host.beat("a", epoch, instance="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert host.beat("b", epoch).error_code == 0


def test_a_static_member_that_stays_away_goes(host: Any) -> None:
    host.beat("a", 0, ["t"], instance="i")
    host.beat("a", -2, instance="i")
    host.advance(45_000)
    assert host.consumer_group().is_empty
    assert host.beat("a", 2, instance="i").error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_instance_id_that_is_in_use_is_not_released(host: Any) -> None:
    host.beat("a", 0, ["t"], instance="i")
    assert host.beat("b", 0, ["t"], instance="i").error_code == ErrorCode.UNRELEASED_INSTANCE_ID
    assert host.beat("b", 2, instance="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert host.beat("b", -1, instance="i").error_code == ErrorCode.FENCED_INSTANCE_ID
    assert host.beat("a", -1, instance="i").error_code == 0
    assert host.beat("b", 0, ["t"], instance="i").error_code == 0


def test_a_static_member_comes_back_with_another_subscription(host: Any) -> None:
    host.beat("a", 0, ["t"], instance="i")
    host.beat("a", -2, instance="i")
    back = host.beat("a2", 0, ["u"], instance="i")
    assert given(back) == {"u": [0, 1]}, "it has nothing left to give up: it is new"
    settle(host, "a2")


# Patterns


def test_a_pattern_stands_for_the_topics_there_are(host: Any) -> None:
    assert given(host.beat("a", 0, pattern="[tv].*")) == {"t": [0, 1, 2, 3]}
    host.set_topics(t=4, u=2, v=1, tv=1)
    assert given(host.beat("a", 2)) == {"t": [0, 1, 2, 3], "tv": [0], "v": [0]}
    host.set_topics(u=2, v=1)
    assert given(host.beat("a", 3)) == {"v": [0]}
    assert host.consumer_group().is_subscribed_to("v")
    assert not host.consumer_group().is_subscribed_to("t")


def test_a_pattern_matches_whole_names_and_adds_to_the_topics_named(host: Any) -> None:
    host.set_topics(t=1, tt=1, u=1)
    assert given(host.beat("a", 0, ["u"], pattern="t")) == {"t": [0], "u": [0]}


def test_a_pattern_is_forgotten_with_its_last_user(host: Any) -> None:
    host.beat("a", 0, pattern="t.*")
    host.beat("b", 0, pattern="t.*")
    settle(host, "a", "b")
    host.beat("a", -1)
    assert set(host.consumer_group().patterns) == {"t.*"}
    host.beat("b", 3, pattern="u")
    assert set(host.consumer_group().patterns) == {"u"}
    host.beat("b", 3, ["t"], pattern="")
    assert not host.consumer_group().patterns
    host.beat("b", 3, pattern="u")
    host.beat("b", -1)
    assert not host.consumer_group().patterns


# Offsets


def test_commits_carry_the_members_epoch(host: Any) -> None:
    host.beat("a", 0, ["t"])
    assert host.commit(member="a", generation=2, version=9) == 0
    assert host.commit(member="a", generation=3, version=9) == ErrorCode.STALE_MEMBER_EPOCH
    assert host.commit(member="a", generation=1, version=9) == ErrorCode.STALE_MEMBER_EPOCH
    assert host.commit(member="x", generation=2, version=9) == ErrorCode.UNKNOWN_MEMBER_ID
    assert host.commit(member="a", generation=2, version=8) == ErrorCode.UNSUPPORTED_VERSION
    assert host.commit(generation=-1, version=9) == ErrorCode.UNKNOWN_MEMBER_ID, "members are here"
    host.beat("a", -1)
    assert host.commit(generation=-1, version=9) == 0


def test_a_commit_of_an_epoch_ago_is_good_for_what_the_member_had_then(host: Any) -> None:
    """KIP-1251."""
    host.beat("a", 0, ["t"])
    host.set_topics(t=5, u=2)
    assert host.beat("a", 2).member_epoch == 3
    assert host.commit(member="a", generation=2, partition=0, version=9) == 0
    assert host.commit(member="a", generation=2, partition=4, version=9) == ErrorCode.STALE_MEMBER_EPOCH
    assert host.commit(member="a", generation=2, topic="u", version=9) == ErrorCode.STALE_MEMBER_EPOCH
    assert host.commit(member="a", generation=3, partition=4, version=9) == 0


@pytest.mark.parametrize(
    ("member", "epoch", "error"),
    [("a", 2, None), (None, -1, None), ("a", 1, ErrorCode.STALE_MEMBER_EPOCH), ("x", 2, ErrorCode.UNKNOWN_MEMBER_ID)],
)
def test_fetches_carry_it_too(host: Any, member: str | None, epoch: int, error: ErrorCode | None) -> None:
    from ottla.errors import KafkaError

    host.beat("a", 0, ["t"])
    asked = OffsetFetchRequestGroup(
        group_id="g",
        member_id=member,
        member_epoch=epoch,
        topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[0])],
    )
    if error is None:
        assert host.shard.offset_fetch(asked, require_stable=True).topics[0].partitions[0].committed_offset == -1
        return
    with pytest.raises(KafkaError) as refused:
        host.shard.offset_fetch(asked, require_stable=True)
    assert refused.value.code == error


def test_offsets_of_subscribed_topics_are_kept_others_expire(new_host: Callable[..., Any]) -> None:
    """G09, G10."""
    host = new_host(offsets_retention_ms=1000)
    host.set_topics(t=1, u=1)
    host.beat("a", 0, ["t"])
    host.commit(member="a", generation=2, topic="t", version=9)
    host.commit(member="a", generation=2, topic="u", version=9)
    host.now_ms += 1000
    host.do(host.shard.expire_offsets(host.now_ms))
    assert (host.committed(topic="t").committed_offset, host.committed(topic="u").committed_offset) == (5, -1)
    host.beat("a", -1)
    host.do(host.shard.expire_offsets(host.now_ms))
    assert not host.shard.groups.by_id, "empty, and without offsets"


def test_a_group_with_members_is_not_deleted(host: Any) -> None:
    host.beat("a", 0, ["t"])
    host.commit(member="a", generation=2, version=9)
    host.do(host.shard.delete_groups(["g"], 1001, host.now))
    assert host.answers[1001][0].error_code == ErrorCode.NON_EMPTY_GROUP
    host.beat("a", -1)
    host.do(host.shard.delete_groups(["g"], 1002, host.now))
    assert host.answers[1002][0].error_code == 0
    assert not host.shard.groups.by_id
    host.compact()
    assert not host.log


# Description


def test_describe_and_list(host: Any) -> None:
    host.beat("a", 0, ["t"], instance="i", rack="r")
    host.beat("b", 0, pattern="t")
    host.beat("a", 2, instance="i")
    (group,) = host.shard.consumer_group_describe(["g"])
    assert (group.error_code, group.group_state, group.group_epoch, group.assignment_epoch) == (0, "Reconciling", 3, 3)
    assert group.assignor_name == "uniform"
    a, b = group.members
    assert (a.member_id, a.instance_id, a.rack_id, a.member_epoch, a.client_host, a.member_type) == ("a", "i", "r", 2, "/h", 1)
    assert a.subscribed_topic_names == ["t"]
    assert (b.subscribed_topic_names, b.subscribed_topic_regex) == ([], "t")
    assert [(t.topic_name, t.partitions) for t in a.assignment.topic_partitions] == [("t", [0, 1, 2, 3])], "until given up"
    assert [(t.topic_name, t.partitions) for t in a.target_assignment.topic_partitions] == [("t", [0, 1])]
    assert not b.assignment.topic_partitions
    (listed,) = host.shard.list_groups(["reconciling"], ["Consumer"])
    assert (listed.group_id, listed.group_type, listed.protocol_type) == ("g", "consumer", "consumer")
    assert host.shard.list_groups([], ["classic"]) == []
    (unknown,) = host.shard.consumer_group_describe(["x"])
    assert (unknown.error_code, unknown.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "group x does not exist")


def test_the_classic_description_does_not_know_it(host: Any) -> None:
    host.beat("a", 0, ["t"])
    (described,) = host.shard.describe_groups(["g"], 6)
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND


# What others have written


def _append(host: Any, key: object, value: object) -> None:
    from ottla.coordinator.shard import CoordinatorRecord
    from ottla.protocol.internal.group_records import encode_key, encode_value

    record = CoordinatorRecord(encode_key(key), encode_value(value, 0))
    host.log.append(record)
    host.shard.replay(record.key, record.value)


def test_a_member_in_a_state_of_a_later_version_begins_anew(host: Any) -> None:
    from ottla.protocol.internal.group_records import (
        ConsumerGroupCurrentMemberAssignmentKey,
        ConsumerGroupCurrentMemberAssignmentValue,
        CurrentTopicPartitions,
    )

    host.beat("a", 0, ["t"])
    has = CurrentTopicPartitions(topic_id=b"t".ljust(16, b"\0"), partitions=[0, 1])
    value = ConsumerGroupCurrentMemberAssignmentValue(member_epoch=2, state=77, assigned_partitions=[has])
    _append(host, ConsumerGroupCurrentMemberAssignmentKey(group_id="g", member_id="a"), value)
    member = host.consumer_group().members["a"]
    assert member.state is MemberState.UNKNOWN
    assert member.assigned == {b"t".ljust(16, b"\0"): {0: 2, 1: 2}}, "partitions without epochs have the member's"
    assert host.beat("a", 2, owned={"t": [0, 1]}).error_code == ErrorCode.FENCED_MEMBER_EPOCH
    again = host.beat("a", 0, ["t"])
    assert (again.error_code, given(again)) == (0, {"t": [0, 1, 2, 3]})
    assert host.consumer_group().state_name == "Stable"


def test_the_record_that_version_4_0_kept_of_topics_is_removed(host: Any) -> None:
    from ottla.protocol.internal.group_records import (
        ConsumerGroupPartitionMetadataKey,
        ConsumerGroupPartitionMetadataValue,
    )

    host.beat("a", 0, ["t"])
    _append(host, ConsumerGroupPartitionMetadataKey(group_id="g"), ConsumerGroupPartitionMetadataValue())
    assert host.consumer_group().has_partition_metadata
    host.set_topics(t=5, u=2)
    host.beat("a", 2)
    assert not host.consumer_group().has_partition_metadata
    assert host.consumer_group().epoch == 3


def test_topics_that_changed_while_nobody_coordinated_are_noticed(host: Any) -> None:
    host.beat("a", 0, ["t"], pattern="[uv]")
    host.beat("b", 0, ["t"])
    settle(host, "a", "b")
    host.reload()
    written = len(host.log)
    assert host.beat("b", 3).error_code == 0
    assert len(host.log) == written, "nothing changed"
    host.set_topics(t=6, u=2, v=1)
    host.reload()
    host.beat("b", 3)
    assert host.consumer_group().epoch == 4
    settle(host, "a", "b")
    assert len(assigned(host, "a") | assigned(host, "b")) == 6
    assert assigned(host, "a", "v") == {0}


def test_patterns_are_looked_at_again_from_time_to_time(new_host: Callable[..., Any]) -> None:
    """Who may see which topic can change without the topics: Kafka's interval is kept."""
    host = new_host(consumer_assignment_interval_ms=0, consumer_regex_refresh_interval_ms=20_000)
    host.set_topics(t=1)
    host.beat("a", 0, pattern="t")
    deadlines = host.shard.consumer.deadlines_of("g")
    resolved_ms = deadlines.resolved_ms
    host.advance(20_000)
    host.beat("a", 2)
    assert deadlines.resolved_ms == resolved_ms
    host.advance(1)
    host.beat("a", 2)
    assert deadlines.resolved_ms == host.ms


def test_a_group_with_a_session_timeout_of_its_own(new_host: Callable[..., Any]) -> None:
    host = new_host(consumer_session_timeout_ms=10_000)
    own = replace(host.config, consumer_session_timeout_ms=20_000)
    host.shard.settings_changed(host.config, {"g": own})
    host.beat("a", 0, ["t"])
    host.beat("b", 0, ["t"], group="other")
    host.advance(10_000)
    assert set(host.consumer_group().members) == {"a"}
    assert host.consumer_group("other").members == {}
    host.advance(10_000)
    assert host.consumer_group().members == {}
