"""The classic group protocol, without a loop: every state, who is answered what, and when."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from ottla.coordinator.group.classic_group import State
from ottla.coordinator.group.consumer_protocol import subscribed_topics
from ottla.errors import ErrorCode

RANGE = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


# Joining


def test_a_first_join_gets_an_id_and_a_second_with_it_joins(host: Any) -> None:  # G01
    first = host.answers[host.join(client="app")]
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("app-")
    token = host.join(first.member_id)
    assert token not in host.answers
    host.advance(3000)
    answer = host.answers[token]
    assert (answer.error_code, answer.generation_id, answer.leader, answer.member_id) == (0, 1, first.member_id, first.member_id)
    assert answer.protocol_type == "consumer"
    assert answer.protocol_name == "range"
    assert [member.member_id for member in answer.members] == [first.member_id]
    assert bytes(answer.members[0].metadata) == RANGE


def test_f38_a_group_goes_through_its_states_as_clients_see_them(host: Any) -> None:
    def state() -> str:
        return str(host.shard.describe_groups(["g"], 4)[0].group_state)

    assert state() == "Dead", "what is not there is told so"
    member, joining = host.new_member()
    assert state() == "PreparingRebalance"
    host.advance(3000)
    assert host.answers[joining].generation_id == 1
    assert state() == "CompletingRebalance"
    syncing = host.sync(member, 1, {member: b"all"})
    assert bytes(host.answers[syncing].assignment) == b"all"
    assert state() == "Stable"
    rejoining = host.join(member)  # the leader wants another generation, and is alone: it begins and ends at once
    assert host.answers[rejoining].generation_id == 2
    assert state() == "CompletingRebalance"
    assert host.leave((member, None)) == [0]
    assert state() == "Empty"
    host.do(host.shard.delete_groups(["g"], 1000, host.now))
    assert state() == "Dead"


def test_before_version_4_a_member_joins_at_once(host: Any) -> None:  # G01
    token = host.join(version=3)
    host.advance(3000)
    assert host.answers[token].error_code == 0
    assert host.answers[token].generation_id == 1


def test_an_id_that_is_not_used_expires(host: Any) -> None:  # G01
    [member] = host.stable()
    pending = host.answers[host.join(session_ms=7000)].member_id
    host.advance(6999)
    assert pending in host.group().pending_join
    host.heartbeat(member, 1)
    host.advance(1)
    assert pending not in host.group().pending_join
    assert host.answers[host.join(pending)].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_waits_for_ids_that_were_given_out(host: Any) -> None:  # G01
    [leader] = host.stable()
    pending = host.answers[host.join(session_ms=6000)].member_id
    rejoin = host.join(leader)
    assert rejoin not in host.answers
    host.advance(6000)
    assert pending not in host.group().pending_join
    assert host.answers[rejoin].generation_id == 2


def test_an_unknown_member_or_group_is_unknown(host: Any) -> None:  # G02
    assert host.answers[host.join("who")].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert "g" not in host.shard.groups.by_id
    host.stable()
    assert host.answers[host.join("who")].error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(("session_ms", "error"), [(5999, 26), (6000, 79), (1_800_000, 79), (1_800_001, 26)])
def test_session_timeouts_have_bounds(host: Any, session_ms: int, error: int) -> None:
    assert host.answers[host.join(session_ms=session_ms)].error_code == error


def test_an_empty_group_id_is_invalid(host: Any) -> None:
    assert host.answers[host.join(group="")].error_code == ErrorCode.INVALID_GROUP_ID


def test_version_0_has_one_timeout_for_both(host: Any) -> None:
    host.join(version=0, session_ms=9000)
    [member] = host.group().members.values()
    assert (member.session_timeout_ms, member.rebalance_timeout_ms) == (9000, 9000)


# The initial delay


def test_a_new_group_waits_for_more_members_as_long_as_they_come(host: Any) -> None:
    first = host.new_member()[1]
    host.advance(2999)
    assert first not in host.answers
    second = host.new_member()[1]
    host.advance(1)
    assert first not in host.answers, "somebody came, so the wait is prolonged"
    host.advance(3000)
    assert host.answers[first].generation_id == host.answers[second].generation_id == 1
    assert len(host.answers[first].members) == 2


def test_the_initial_delay_ends_with_the_rebalance_timeout(host: Any) -> None:
    tokens = [host.new_member(rebalance_ms=7000)[1]]
    for _ in range(3):
        host.advance(2500)
        tokens.append(host.new_member(rebalance_ms=7000)[1])
    assert tokens[0] in host.answers
    assert host.answers[tokens[0]].generation_id == 1


def test_no_initial_delay_if_it_is_set_to_zero(new_host: Callable[..., Any]) -> None:
    host = new_host(initial_rebalance_delay_ms=0)
    token = host.new_member()[1]
    host.advance(0)
    assert host.answers[token].generation_id == 1


# Protocols


def test_without_a_common_protocol_a_member_is_refused(host: Any) -> None:  # G03
    host.stable()
    refused = host.answers[host.join(protocols={"sticky": RANGE})]
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert host.answers[host.join(protocol_type="connect")].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert host.answers[host.join(group="new", protocol_type="")].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert host.answers[host.join(group="new", protocols={})].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert "new" not in host.shard.groups.by_id


def test_the_protocol_with_most_votes_among_the_common_ones_wins(host: Any) -> None:  # G03
    wishes = [("a", "b", "c"), ("b", "a"), ("c", "b", "a"), ("b", "c", "a")]
    tokens = [host.new_member(protocols={name: name.encode() for name in wish})[1] for wish in wishes]
    host.advance(20_000)
    # c is not common; of those left a has the vote of the first, b those of the others.
    assert {host.answers[token].protocol_name for token in tokens} == {"b"}
    leader = next(host.answers[token] for token in tokens if host.answers[token].members)
    assert [bytes(member.metadata) for member in leader.members] == [b"b"] * 4


# Who joins again


def test_a_followers_same_join_does_not_rebalance_but_a_leaders_does(host: Any) -> None:  # G03
    leader, follower = host.stable(2)
    again = host.answers[host.join(follower)]
    assert (again.error_code, again.generation_id, again.members, again.leader) == (0, 1, [], leader)
    assert host.group().state is State.STABLE
    token = host.join(leader)
    assert token not in host.answers
    assert host.group().state is State.PREPARING_REBALANCE
    assert host.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    other = host.join(follower)
    assert host.answers[token].generation_id == host.answers[other].generation_id == 2


def test_a_follower_with_other_metadata_rebalances(host: Any) -> None:
    leader, follower = host.stable(2)
    host.join(follower, protocols={"range": RANGE + b"more"})
    assert host.group().state is State.PREPARING_REBALANCE
    assert host.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_join_repeated_while_the_assignment_is_awaited_gets_the_same_answer(host: Any) -> None:
    leader, first = host.new_member()
    follower, second = host.new_member()
    host.advance(9000)
    for member_id, token in ((leader, first), (follower, second)):
        again = host.answers[host.join(member_id)]
        assert again == host.answers[token]
    assert host.group().state is State.COMPLETING_REBALANCE


def test_a_join_from_another_connection_ends_the_wait_of_the_former(host: Any) -> None:
    leader, _ = host.stable(2)
    first = host.join(leader)
    second = host.join(leader)
    assert host.answers[first].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert second not in host.answers
    assert host.group().awaiting_join == 1


def test_a_member_that_does_not_come_back_is_left_behind(host: Any) -> None:  # F39
    leader, follower = host.stable(2, session_ms=600_000)
    token = host.join(leader, session_ms=600_000)
    host.advance(59_999)
    assert token not in host.answers
    host.advance(1)
    assert host.answers[token].generation_id == 2
    assert host.heartbeat(follower, 2) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_come_back_is_replaced(host: Any) -> None:
    leader, follower = host.stable(2, session_ms=600_000)
    token = host.join(follower, protocols={"range": RANGE + b"x"}, session_ms=600_000)
    host.advance(60_000)
    answer = host.answers[token]
    assert answer.leader == follower
    assert [member.member_id for member in answer.members] == [follower]
    assert leader not in host.group().members


def test_the_rebalance_timeout_is_the_longest_of_the_members(host: Any) -> None:
    members = [host.new_member(rebalance_ms=ms, session_ms=900_000) for ms in (10_000, 90_000)]
    host.advance(9000)
    leader = host.answers[members[0][1]].leader
    host.settle([leader, *(name for name, _ in members if name != leader)], 1)
    token = host.join(leader, rebalance_ms=10_000, session_ms=900_000)
    host.advance(89_999)
    assert token not in host.answers
    host.advance(1)
    assert token in host.answers


# Sync


def test_all_members_get_their_part_byte_by_byte(host: Any) -> None:  # G02
    members = [host.new_member() for _ in range(3)]
    host.advance(12_000)
    leader = host.answers[members[0][1]].leader
    ids = [member_id for member_id, _ in members]
    followers = [host.sync(member_id, 1) for member_id in ids if member_id != leader]
    assert not any(token in host.answers for token in followers)
    assignments = {member_id: bytes(range(number, 256)) for number, member_id in enumerate(ids)}
    token = host.sync(leader, 1, assignments, protocol_type="consumer", protocol_name="range")
    assert host.group().state is State.STABLE
    assert host.answers[token].assignment == assignments[leader]
    assert host.answers[token].protocol_name == "range"
    for member_id, waited in zip((member_id for member_id in ids if member_id != leader), followers, strict=True):
        assert host.answers[waited].assignment == assignments[member_id]
    late = host.sync(ids[1], 1)
    assert host.answers[late].assignment == assignments[ids[1]]


def test_members_the_leader_forgot_get_nothing(host: Any) -> None:
    leader, first = host.new_member()
    follower, _ = host.new_member()
    host.advance(9000)
    assert host.answers[first].leader == leader
    waited = host.sync(follower, 1)
    host.sync(leader, 1, {leader: b"all"})
    assert host.answers[waited].error_code == 0
    assert host.answers[waited].assignment == b""


def test_errors_of_sync(host: Any) -> None:  # G02
    assert host.answers[host.sync("who", 1)].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    leader, follower = host.stable(2)
    assert host.answers[host.sync("who", 1)].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert host.answers[host.sync(leader, 2)].error_code == ErrorCode.ILLEGAL_GENERATION
    wrong_type = host.sync(leader, 1, protocol_type="connect")
    assert host.answers[wrong_type].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    wrong_name = host.sync(leader, 1, protocol_name="sticky")
    assert host.answers[wrong_name].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    host.join(leader)
    assert host.answers[host.sync(follower, 1)].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_those_who_wait_for_an_assignment_hear_of_a_new_rebalance(host: Any) -> None:
    _leader, _ = host.new_member()
    follower, _ = host.new_member()
    host.advance(9000)
    waited = host.sync(follower, 1)
    host.new_member()
    assert host.answers[waited].error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert host.group().state is State.PREPARING_REBALANCE


def test_members_that_never_sync_are_removed_after_the_rebalance_timeout(host: Any) -> None:
    leader, first = host.new_member(rebalance_ms=20_000, session_ms=600_000)
    follower, _ = host.new_member(rebalance_ms=20_000, session_ms=600_000)
    host.advance(9000)
    assert host.answers[first].leader == leader
    host.sync(leader, 1, {leader: b"a", follower: b"b"})
    host.advance(20_000)
    assert follower not in host.group().members
    assert host.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS


# Heartbeats and sessions


def test_errors_of_heartbeat(host: Any) -> None:  # G02
    assert host.heartbeat("who", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    [member] = host.stable()
    assert host.heartbeat(member, 1) == 0
    assert host.heartbeat(member, 0) == ErrorCode.ILLEGAL_GENERATION
    assert host.heartbeat(member, 2) == ErrorCode.ILLEGAL_GENERATION
    assert host.heartbeat("who", 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert host.heartbeat(member, 1, instance="x") == ErrorCode.UNKNOWN_MEMBER_ID


def test_heartbeats_keep_a_member_and_silence_ends_it(host: Any) -> None:  # G06
    leader, follower = host.stable(2)
    for _ in range(5):
        host.advance(9_999)
        assert host.heartbeat(leader, 1) == 0
        assert host.heartbeat(follower, 1) == 0
    host.advance(9_000)
    host.heartbeat(leader, 1)
    host.advance(1_000)
    assert follower not in host.group().members
    assert host.heartbeat(leader, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    token = host.join(leader)
    assert host.answers[token].generation_id == 2, "nobody else is awaited"


def test_a_heartbeat_costs_no_timer(host: Any) -> None:
    [member] = host.stable()
    timers = dict(host.timers)
    for _ in range(3):
        host.advance(1000)
        host.heartbeat(member, 1)
        assert host.timers == timers


def test_a_heartbeat_while_the_assignment_is_awaited_is_no_error(host: Any) -> None:
    member, _ = host.new_member()
    host.advance(3000)
    assert host.group().state is State.COMPLETING_REBALANCE
    assert host.heartbeat(member, 1) == 0


def test_a_parked_member_lives_longer_than_its_session(host: Any) -> None:
    leader, follower = host.stable(2, rebalance_ms=300_000)
    token = host.join(leader, rebalance_ms=300_000)
    for _ in range(6):
        host.advance(9_000)
        assert host.heartbeat(follower, 1) == ErrorCode.REBALANCE_IN_PROGRESS
    assert leader in host.group().members
    host.join(follower, rebalance_ms=300_000)
    assert host.answers[token].generation_id == 2
    host.advance(10_000)
    assert host.group().members == {}, "its session began when it was answered"


def test_a_new_member_that_waits_too_long_is_given_up(host: Any) -> None:
    leader, _ = host.stable(2, session_ms=1_800_000, rebalance_ms=900_000)
    newcomer, token = host.new_member(session_ms=1_800_000, rebalance_ms=900_000)
    host.advance(299_999)
    assert token not in host.answers
    host.advance(1)
    assert host.answers[token].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert newcomer not in host.group().members
    assert leader in host.group().members


def test_a_commit_is_as_good_as_a_heartbeat(host: Any) -> None:
    [member] = host.stable()
    host.advance(9_000)
    assert host.commit(member=member, generation=1) == 0
    host.advance(9_000)
    assert member in host.group().members
    host.advance(1_000)
    assert member not in host.group().members


# Leaving


def test_a_member_that_leaves_is_gone_at_once(host: Any) -> None:  # G06
    leader, follower = host.stable(2)
    assert host.leave((leader, None)) == [0]
    assert host.group().state is State.PREPARING_REBALANCE
    assert host.heartbeat(leader, 1) == ErrorCode.UNKNOWN_MEMBER_ID
    assert host.answers[host.join(follower)].leader == follower


def test_a_batch_leaves_by_member_and_by_instance_id(host: Any) -> None:  # G06
    static = [host.join(instance=name) for name in ("one", "two")]
    dynamic, token = host.new_member()
    host.advance(12_000)
    ids = [host.answers[waited].member_id for waited in static]
    assert host.answers[token].generation_id == 1
    errors = host.leave(("", "one"), ("wrong", "two"), (dynamic, None), ("who", None), ("", "none"), ("", None))
    assert errors == [
        0,
        ErrorCode.FENCED_INSTANCE_ID,
        0,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
    ]
    assert list(host.group().members) == [ids[1]]


def test_an_id_that_was_given_out_may_leave(host: Any) -> None:
    host.stable()
    pending = host.answers[host.join()].member_id
    assert host.leave((pending, None)) == [0]
    assert not host.group().pending_join
    assert host.group().state is State.STABLE


def test_when_all_have_left_the_group_is_empty_and_that_is_written(host: Any) -> None:
    members = host.stable(2)
    host.leave(*((member, None) for member in members))
    assert host.group().state is State.EMPTY
    assert host.group().generation == 2
    host.reload()
    assert host.group().state is State.EMPTY
    assert host.group().generation == 2
    assert host.group().protocol_type == "consumer"


def test_who_waits_is_told_when_it_is_made_to_leave(host: Any) -> None:
    _leader, _ = host.new_member()
    follower, _ = host.new_member()
    host.advance(9000)
    waited = host.sync(follower, 1)
    host.leave((follower, None))
    assert host.answers[waited].error_code == ErrorCode.UNKNOWN_MEMBER_ID
    parked = host.join(version=0)
    host.leave((next(name for name in host.group().members if name.endswith(f"id{parked}")), None))
    assert host.answers[parked].error_code == ErrorCode.UNKNOWN_MEMBER_ID


# Static members


def _static(host: Any, *names: str, session_ms: int = 10_000) -> dict[str, str]:
    tokens = {name: host.join(instance=name, session_ms=session_ms) for name in names}
    host.advance(host.config.initial_rebalance_delay_ms * (len(names) + 1))
    answers = {name: host.answers[token] for name, token in tokens.items()}
    leader = answers[names[0]].leader
    ids = [answer.member_id for answer in answers.values()]
    host.settle(sorted(ids, key=lambda member_id: member_id != leader), 1)
    return {name: answer.member_id for name, answer in answers.items()}


def test_a_static_member_needs_no_second_join(host: Any) -> None:
    ids = _static(host, "one")
    assert ids["one"].startswith("one-")


def test_a_static_member_comes_back_without_a_rebalance(host: Any) -> None:  # G04
    ids = _static(host, "one", "two")
    other = "two" if host.group().leader == ids["one"] else "one"
    former, assignment = ids[other], host.group().members[ids[other]].assignment
    again = host.answers[host.join(instance=other)]
    assert (again.error_code, again.generation_id, again.skip_assignment, again.members) == (0, 1, False, [])
    assert again.member_id != former
    assert host.group().state is State.STABLE
    assert host.answers[host.sync(again.member_id, 1, instance=other)].assignment == assignment
    assert host.heartbeat(former, 1, instance=other) == ErrorCode.FENCED_INSTANCE_ID
    assert host.commit(member=former, generation=1, instance=other) == ErrorCode.FENCED_INSTANCE_ID
    assert host.answers[host.sync(former, 1, instance=other)].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert host.answers[host.join(former, instance=other)].error_code == ErrorCode.FENCED_INSTANCE_ID
    assert host.leave((former, other)) == [ErrorCode.FENCED_INSTANCE_ID]
    host.reload()
    assert host.heartbeat(again.member_id, 1, instance=other) == 0, "the new id was written down"


def test_a_static_leader_comes_back_and_is_told_to_leave_the_assignment_alone(host: Any) -> None:  # G04
    ids = _static(host, "one", "two")
    leader = next(name for name, member_id in ids.items() if member_id == host.group().leader)
    again = host.answers[host.join(instance=leader, version=9)]
    assert again.skip_assignment
    assert again.leader == again.member_id == host.group().leader
    assert len(again.members) == 2
    older = host.answers[host.join(instance=leader, version=8)]
    assert not older.skip_assignment
    assert older.leader == again.member_id != older.member_id, "it must not take itself for the leader"
    assert older.members == []
    assert host.group().generation == 1


def test_a_static_member_that_stays_away_is_removed_with_one_rebalance(host: Any) -> None:  # G04
    ids = _static(host, "one", "two")
    for _ in range(3):
        host.advance(9000)
        assert host.heartbeat(ids["one"], 1, instance="one") in (0, ErrorCode.REBALANCE_IN_PROGRESS)
    assert list(host.group().members) == [ids["one"]]
    assert host.group().state is State.PREPARING_REBALANCE
    token = host.join(ids["one"], instance="one")
    assert host.answers[token].generation_id == 2


def test_a_static_member_with_another_protocol_rebalances(host: Any) -> None:
    _static(host, "one")
    token = host.join(instance="one", protocols={"sticky": RANGE})
    assert host.answers[token].error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    token = host.join(instance="one", protocols={"sticky": RANGE, "range": RANGE})
    assert host.answers[token].generation_id == 2, "it would now vote for another"
    assert host.answers[token].protocol_name == "sticky"


def test_the_double_of_a_static_member_that_waits_is_fenced(host: Any) -> None:  # G04
    first = host.join(instance="one")
    second = host.join(instance="one")
    assert host.answers[first].error_code == ErrorCode.FENCED_INSTANCE_ID
    host.advance(3000)
    assert host.answers[second].generation_id == 1
    waiting = host.join(instance="two")
    assert host.group().state is State.PREPARING_REBALANCE
    third = host.join(instance="one")
    assert host.answers[third].generation_id == host.answers[waiting].generation_id == 2


def test_absent_static_members_stay_through_a_rebalance(host: Any) -> None:
    ids = _static(host, "one", "two", session_ms=600_000)
    newcomer = host.new_member(session_ms=600_000)[1]
    host.advance(60_000)
    assert set(ids.values()) <= set(host.group().members)
    assert host.answers[newcomer].leader == host.answers[newcomer].member_id, "a leader must be there to lead"


# Limits


def test_the_group_size_is_limited(new_host: Callable[..., Any]) -> None:  # G10
    host = new_host(size_max=2)
    members = host.stable(2)
    assert host.answers[host.join()].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    token = host.join(members[0])
    host.join(members[1])
    assert host.answers[token].generation_id == 2
    assert host.group().state is State.COMPLETING_REBALANCE
    assert host.answers[host.join()].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED


def test_a_loaded_group_that_has_become_too_large_rebalances(new_host: Callable[..., Any]) -> None:  # G10
    host = new_host()
    members = host.stable(3)
    host.config = new_host(size_max=2).config
    host.reload()
    assert host.group().state is State.PREPARING_REBALANCE
    tokens = [host.join(member) for member in members]
    assert host.answers[tokens[2]].error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    host.advance(60_000)
    assert [host.answers[token].generation_id for token in tokens[:2]] == [2, 2]


def test_a_group_too_large_to_be_written_down_hurts_itself_only(new_host: Callable[..., Any]) -> None:
    host = new_host(record_bytes_max=2000)
    leader, first = host.new_member()
    follower, _ = host.new_member()
    host.advance(9000)
    assert host.answers[first].leader == leader
    waited = host.sync(follower, 1)
    token = host.sync(leader, 1, {leader: b"x" * 2000})
    assert host.answers[waited].error_code == host.answers[token].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert host.log == []
    assert host.group().state is State.PREPARING_REBALANCE
    tokens = [host.join(leader), host.join(follower)]
    assert [host.answers[each].generation_id for each in tokens] == [2, 2]
    host.settle([leader, follower], 2)


# Restarts


def test_after_a_restart_members_go_on_without_a_rebalance(host: Any) -> None:  # G07
    leader, follower = host.stable(2)
    host.commit(77, member=follower, generation=1)
    host.reload()
    assert host.heartbeat(leader, 1) == 0
    assert host.heartbeat(follower, 1) == 0
    assert host.answers[host.sync(follower, 1)].assignment == b"for 1"
    assert host.committed().committed_offset == 77
    assert host.commit(78, member=leader, generation=1) == 0
    host.advance(9_999)
    assert set(host.group().members) == {leader, follower}
    host.advance(1)
    assert host.group().members == {}


def test_a_rebalance_that_was_under_way_is_forgotten(host: Any) -> None:  # G07
    leader, follower = host.stable(2)
    host.join(leader)
    host.join(follower)
    assert host.group().generation == 2
    host.reload()
    assert (host.group().state, host.group().generation) == (State.STABLE, 1)
    assert host.heartbeat(leader, 2) == ErrorCode.ILLEGAL_GENERATION


def test_a_compacted_log_gives_the_same_groups(host: Any) -> None:  # G11
    first = host.stable(2)
    host.join(first[0])
    host.join(first[1])
    host.settle(first, 2)
    [other] = host.stable(group="h")
    host.leave((other, None), group="h")
    host.commit(5, group="simple")
    host.commit(6, group="simple", partition=1)
    host.commit(7, member=first[0], generation=2)
    before = {group_id: (group.state_name, group.generation) for group_id, group in host.shard.groups.by_id.items()}
    offsets = {name: list(host.shard.offsets.of_group(name)) for name in before}
    length = len(host.log)
    host.compact()
    assert len(host.log) < length
    host.reload()
    assert {name: (group.state_name, group.generation) for name, group in host.shard.groups.by_id.items()} == before
    assert {name: list(host.shard.offsets.of_group(name)) for name in before} == offsets


def test_a_member_is_loaded_with_what_it_said_last(host: Any) -> None:  # G07
    """A later record of the same member, with another protocol and other timeouts, replaces what an earlier one said."""
    [member] = host.stable(protocols={"range": b"r", "sticky": b"s"})
    token = host.join(member, protocols={"sticky": b"S"}, session_ms=20_000, rebalance_ms=70_000)
    host.settle([member], host.answers[token].generation_id)
    host.reload()
    loaded = host.group().members[member]
    assert loaded.protocols == (("sticky", b"S"),)
    assert (loaded.session_timeout_ms, loaded.rebalance_timeout_ms) == (20_000, 70_000)


# Parsing


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"\0\0\0\0\0",
        b"\0\0\0\0\0\1",
        b"\0\0\0\0\0\1\0\5ab",
        b"\0\0\xff\xff\xff\xff",
        b"\0\0\0\0\0\1\0\1\xff",
        b"\xff\xff\0\0\0\0",
    ],
)
def test_what_is_no_subscription_is_none(data: bytes) -> None:
    assert subscribed_topics(data) is None


def test_a_group_with_unreadable_subscriptions_may_be_subscribed_to_anything(host: Any) -> None:
    host.stable(protocols={"range": b"?"})
    assert host.group().is_subscribed_to("whatever")
    host.stable(group="h", protocol_type="connect", protocols={"x": b"?"})
    assert not host.group("h").is_subscribed_to("whatever")


def test_g03_equal_votes_are_decided_as_by_javas_hash_map() -> None:
    """Apache Kafka 4.3 was asked: of these two it takes sticky, whoever comes first."""
    from ottla.coordinator.group.classic_group import _in_java_order

    assert _in_java_order(["range", "sticky"]) == _in_java_order(["sticky", "range"]) == ["sticky", "range"]
    assert sorted(_in_java_order([str(number) for number in range(40)])) == sorted(str(number) for number in range(40))
