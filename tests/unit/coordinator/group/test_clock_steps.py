"""Somebody sets the clock: sessions and rebalances go on as if nothing had been, records tell the new time (G03)."""

from __future__ import annotations

from typing import Any

import pytest

from ottla.coordinator.group.classic_group import State
from ottla.errors import ErrorCode
from ottla.protocol.internal.group_records import decode_record

HOUR_MS = 3_600_000

steps = pytest.mark.parametrize("step_ms", [HOUR_MS, -HOUR_MS])


@steps
def test_a_classic_member_is_heard_of_in_time_and_stays(host: Any, step_ms: int) -> None:
    member, joined = host.new_member(session_ms=10_000)
    host.advance(3_000)
    generation = host.answers[joined].generation_id
    host.sync(member, generation, {member: b""})
    host.now_ms += step_ms
    for _ in range(5):
        host.advance(9_000)
        assert host.heartbeat(member, generation) == ErrorCode.NONE


@steps
def test_a_classic_member_that_falls_silent_goes_after_its_session_not_later(host: Any, step_ms: int) -> None:
    member, joined = host.new_member(session_ms=10_000)
    host.advance(3_000)
    host.sync(member, host.answers[joined].generation_id, {member: b""})
    host.now_ms += step_ms
    host.advance(9_999)
    assert set(host.group().members) == {member}
    host.advance(1)
    assert host.group().members == {}


@steps
def test_a_rebalance_waits_for_its_members_as_long_as_they_asked(host: Any, step_ms: int) -> None:
    first, joined = host.new_member(session_ms=30_000, rebalance_ms=20_000)
    host.advance(3_000)
    host.sync(first, host.answers[joined].generation_id, {first: b""})
    _, waiting = host.new_member(session_ms=30_000, rebalance_ms=20_000)
    assert host.group().state is State.PREPARING_REBALANCE
    host.now_ms += step_ms
    host.advance(19_999)
    assert waiting not in host.answers
    host.advance(1)
    assert host.answers[waiting].error_code == ErrorCode.NONE


@steps
def test_a_commit_is_a_sign_of_life_of_a_classic_member(host: Any, step_ms: int) -> None:
    member, joined = host.new_member(session_ms=10_000)
    host.advance(3_000)
    generation = host.answers[joined].generation_id
    host.sync(member, generation, {member: b""})
    host.advance(9_000)
    host.now_ms += step_ms
    assert host.commit(member=member, generation=generation) == ErrorCode.NONE
    host.advance(9_000)
    assert host.heartbeat(member, generation) == ErrorCode.NONE


@steps
def test_a_member_of_the_new_protocol_lives_by_its_heartbeats(new_host: Any, step_ms: int) -> None:
    host = new_host(consumer_session_timeout_ms=10_000)
    epoch = host.beat("a", 0, ["t"]).member_epoch
    host.now_ms += step_ms
    for _ in range(3):
        host.advance(9_999)
        assert host.beat("a", epoch).error_code == ErrorCode.NONE
    host.now_ms -= step_ms
    host.advance(9_999)
    assert set(host.consumer_group().members) == {"a"}
    host.advance(1)
    assert host.consumer_group().members == {}


@steps
def test_commits_are_written_with_the_time_that_the_clock_shows(host: Any, step_ms: int) -> None:
    host.now_ms += step_ms
    assert host.commit(7) == ErrorCode.NONE
    _, _, value = decode_record(host.log[-1].key, host.log[-1].value)  # type: ignore[misc]
    assert value.commit_timestamp == host.now_ms
